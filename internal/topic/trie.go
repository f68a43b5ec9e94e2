package topic

import "strings"

// Trie maps topic filters to values. The zero Trie is empty and ready to use. Any number of goroutines may call Match
// at once, as long as none calls Insert.
type Trie[V any] struct{ root node[V] }

type node[V any] struct {
	children map[string]*node[V]
	plus     *node[V] // the level '+'
	values   []V      // of filters that end here
	hash     []V      // of filters that end in '#' below here
}

// Insert adds a value to a valid filter. A filter may have several.
func (t *Trie[V]) Insert(filter string, v V) {
	n := &t.root
	for rest, more := filter, true; more; {
		var level string
		level, rest, more = strings.Cut(rest, "/")
		switch level {
		case "#":
			n.hash = append(n.hash, v)
			return
		case "+":
			if n.plus == nil {
				n.plus = new(node[V])
			}
			n = n.plus
		default:
			child := n.children[level]
			if child == nil {
				if n.children == nil {
					n.children = make(map[string]*node[V])
				}
				child = new(node[V])
				n.children[level] = child
			}
			n = child
		}
	}
	n.values = append(n.values, v)
}

// Match calls yield with the values of every filter that matches topic, in no particular order. A value is yielded once
// for each filter that it was inserted with and that matches. Match does not allocate.
func (t *Trie[V]) Match(topic string, yield func(V)) {
	t.root.match(topic, strings.HasPrefix(topic, "$"), yield)
}

// match passes the levels of rest down the tree. Wildcards of the first level do not match what begins with '$'.
func (n *node[V]) match(rest string, reserved bool, yield func(V)) {
	if !reserved {
		each(n.hash, yield)
	}
	level, rest, more := strings.Cut(rest, "/")
	if child := n.children[level]; child != nil {
		child.descend(rest, more, yield)
	}
	if n.plus != nil && !reserved {
		n.plus.descend(rest, more, yield)
	}
}

func (n *node[V]) descend(rest string, more bool, yield func(V)) {
	if more {
		n.match(rest, false, yield)
		return
	}
	each(n.values, yield)
	each(n.hash, yield) // "a/#" matches "a"
}

func each[V any](values []V, yield func(V)) {
	for _, v := range values {
		yield(v)
	}
}
