package conformance

import (
	"slices"
	"strings"

	"github.com/eclipse/paho.golang/packets"
)

var filterChecks = []check{
	{"4.7.1", "WildcardsMatchAsTheStandardSays", func(p *probe) {
		for i, test := range []struct {
			filter  string
			matches []string
			others  []string
		}{
			{"#", []string{"a", "a/b", "/", "a/b/c"}, nil},
			{"a/#", []string{"a", "a/b", "a/b/c", "a/"}, []string{"b", "aa", "aa/b"}},
			{"a/+", []string{"a/b", "a/"}, []string{"a", "a/b/c", "b/b"}},
			{"+", []string{"a"}, []string{"a/b", "/a"}},
			{"+/+", []string{"a/b", "/a", "/"}, []string{"a", "a/b/c"}},
			{"/+", []string{"/a"}, []string{"a", "a/b"}},
			{"+/b/#", []string{"a/b", "/b/c/d"}, []string{"b", "a/c"}},
			{"a/+/c", []string{"a/b/c", "a//c"}, []string{"a/c", "a/b/d"}},
			{"A", []string{"A"}, []string{"a"}},
		} {
			c := p.connect(string(rune('a' + i)))
			c.subscribe(0, p.topic(test.filter))
			for _, topic := range append(test.others, test.matches...) {
				p.publish(p.topic(topic), 1, topic)
			}
			if got := payloadsOf(c.rest()); !slices.Equal(got, test.matches) {
				p.failf("%q got %q, want %q", test.filter, got, test.matches)
			}
		}
	}},
	{"4.7.2", "AWildcardDoesNotMatchATopicThatBeginsWithADollarSign", func(p *probe) {
		c := p.connect("c")
		c.subscribeWith(0, packets.SubOptions{Topic: "#", RetainHandling: 2}, packets.SubOptions{Topic: "+/" + p.topic("x"), RetainHandling: 2})
		d := p.connect("d")
		d.subscribe(0, "$"+p.topic("#"))
		p.publish("$"+p.topic("x"), 0, "dollar")
		p.publish(p.topic("plain"), 1, "plain")
		for {
			m := next[*packets.Publish](c)
			if strings.HasPrefix(m.Topic, "$") {
				p.failf("a wildcard has matched %q", m.Topic)
			}
			if m.Topic == p.topic("plain") {
				break
			}
		}
		if got := d.rest(); len(got) == 0 || got[0].Content.(*packets.Publish).Topic != "$"+p.topic("x") { //nolint:forcetypeassert // a panic is a failure too
			p.failf("a filter that begins with $ got %v", got)
		}
	}},
	{"4.7.1", "AFilterThatIsNoneIsNotGranted", func(p *probe) {
		for _, filter := range []string{"a/#/b", "a#", "a+", "+a/b", "#/a"} {
			c := p.connect("c")
			c.send(c.subscription(0, packets.SubOptions{Topic: p.topic(filter), QoS: 1}))
			c.wantNoGrant(filter)
		}
	}},
	{"4.8.2", "ASharedFilterThatIsNoneIsNotGranted", func(p *probe) {
		for _, filter := range []string{"$share/g", "$share//a", "$share/g/", "$share/g+/a", "$share/#/a"} {
			c := p.connect("c")
			c.send(c.subscription(0, packets.SubOptions{Topic: filter, QoS: 1}))
			c.wantNoGrant(filter)
		}
	}},
}

// wantNoGrant wants SUBACK with an error, or the end of the connection.
func (c *peer) wantNoGrant(filter string) {
	c.send(&packets.Disconnect{Properties: &packets.Properties{}})
	for _, got := range c.end() {
		if ack, ok := got.Content.(*packets.Suback); ok && ack.Reasons[0] < 0x80 {
			c.p.failf("%q was granted QoS %d", filter, ack.Reasons[0])
		}
	}
}
