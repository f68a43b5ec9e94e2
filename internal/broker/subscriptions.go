package broker

import (
	"slices"
	"strings"
)

// subscription is one filter of one session, or of an observer in this process.
type subscription struct {
	filter           // the options of the SUBSCRIBE that made it, or the last one that changed it
	ids     []uint32 // its Subscription Identifier, or none; replaced, never changed
	session *session // nil of an observer
	group   *group   // nil unless shared
	watcher *observer
	node    *node // where it stands in the tree; nil of a member of a group
}

// group is a shared subscription (4.8.2): a ShareName and a filter, its members, and what waits for one of them to have room.
type group struct {
	key     string
	entry   *subscription // stands in the tree for all members
	members []*subscription
	next    int // whose turn it is
	queued  list
	dropped uint64
}

// tree maps filters to subscriptions, level by level.
type tree struct{ root node }

type node struct {
	parent   *node
	level    string
	children map[string]*node // "+" and "#" among them
	subs     []*subscription
}

// insert puts a subscription under its topic filter.
func (t *tree) insert(sub *subscription) {
	n := &t.root
	for rest, more := sub.topicFilter, true; more; {
		var level string
		level, rest, more = strings.Cut(rest, "/")
		child := n.children[level]
		if child == nil {
			child = &node{parent: n, level: level}
			if n.children == nil {
				n.children = make(map[string]*node)
			}
			n.children[level] = child
		}
		n = child
	}
	n.subs = append(n.subs, sub)
	sub.node = n
}

// remove takes a subscription out, and the levels that nobody needs any more.
func (sub *subscription) remove() {
	n := sub.node
	sub.node = nil
	if i := slices.Index(n.subs, sub); i >= 0 {
		n.subs = slices.Delete(n.subs, i, i+1)
	}
	for n.parent != nil && len(n.subs) == 0 && len(n.children) == 0 {
		delete(n.parent.children, n.level)
		n = n.parent
	}
}

// match appends to dst the subscriptions whose filters match a topic (4.7).
func (t *tree) match(dst []*subscription, topic string) []*subscription {
	return t.root.match(dst, topic, strings.HasPrefix(topic, "$"))
}

// match goes down one level. Wildcards of the first level do not match what begins with '$' [MQTT-4.7.2-1].
func (n *node) match(dst []*subscription, rest string, reserved bool) []*subscription {
	if n.children == nil {
		return dst
	}
	level, rest, more := strings.Cut(rest, "/")
	if !reserved {
		if hash := n.children["#"]; hash != nil {
			dst = append(dst, hash.subs...)
		}
		if plus := n.children["+"]; plus != nil {
			dst = plus.descend(dst, rest, more)
		}
	}
	if child := n.children[level]; child != nil {
		dst = child.descend(dst, rest, more)
	}
	return dst
}

func (n *node) descend(dst []*subscription, rest string, more bool) []*subscription {
	if more {
		return n.match(dst, rest, false)
	}
	dst = append(dst, n.subs...)
	if hash := n.children["#"]; hash != nil { // "a/#" matches "a"
		dst = append(dst, hash.subs...)
	}
	return dst
}

// subscribe makes or replaces a session's subscription (3.8.4) and tells whether it is new.
func (b *Broker) subscribe(s *session, f filter, subID uint32) (sub *subscription, isNew bool) {
	var ids []uint32
	if subID != 0 {
		ids = []uint32{subID}
	}
	if sub = s.subscriptions[f.filter]; sub != nil {
		sub.filter, sub.ids = f, ids
		return sub, false
	}
	sub = &subscription{filter: f, ids: ids, session: s}
	if s.subscriptions == nil {
		s.subscriptions = make(map[string]*subscription)
	}
	s.subscriptions[f.filter] = sub
	if !f.shared() {
		b.tree.insert(sub)
		return sub, true
	}
	g := b.groups[f.filter]
	if g == nil {
		g = &group{key: f.filter}
		g.entry = &subscription{filter: f, group: g}
		b.tree.insert(g.entry)
		b.groups[f.filter] = g
	}
	sub.group = g
	g.members = append(g.members, sub)
	s.shares = append(s.shares, sub)
	b.stale = append(b.stale, g)
	return sub, true
}

// unsubscribe ends a session's subscription. What it had queued stays queued; of a shared one it goes to the members that are left.
func (b *Broker) unsubscribe(sub *subscription) {
	s := sub.session
	delete(s.subscriptions, sub.filter.filter)
	g := sub.group
	if g == nil {
		sub.remove()
		return
	}
	s.shares = slices.DeleteFunc(s.shares, func(x *subscription) bool { return x == sub })
	g.members = slices.DeleteFunc(g.members, func(x *subscription) bool { return x == sub })
	if len(g.members) == 0 {
		g.entry.remove()
		delete(b.groups, g.key)
	}
}

// serve gives what waits in a group to members that have room, in turn.
func (g *group) serve() {
	for idle := 0; g.queued.n > 0 && idle < len(g.members); {
		g.next %= len(g.members)
		m := g.members[g.next]
		o := g.queued.head
		qos := min(o.msg.qos, m.qos)
		if !m.session.room(qos) {
			g.next++
			idle++
			continue
		}
		o.remove()
		m.session.launch(o.meant(m, qos))
		g.next++
		idle = 0
	}
}

// meant makes a message of a group one for a member.
func (o *outbound) meant(member *subscription, qos byte) *outbound {
	o.qos, o.ids = qos, member.ids
	o.retain = o.msg.retain && member.asPublished
	return o
}
