package broker

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"

	"github.com/settlemq/settle/internal/topic"
)

// connect is a CONNECT (3.1).
type connect struct {
	clientID        string
	username        string
	password        []byte
	cleanStart      bool
	keepAlive       uint16
	sessionExpiry   uint32
	receiveMaximum  uint16
	maximumPacket   uint32 // math.MaxUint32 for no limit
	hideProblemInfo bool
	authMethod      string
	hasAuthMethod   bool
	will            *message
	willDelay       uint32
}

// errNotMQTT is the violation of a peer that does not speak MQTT: it gets no answer at all (3.1.2.1).
var errNotMQTT = &violation{code: codeUnsupportedVersion, reason: "not MQTT"}

func decodeConnect(b []byte) (*connect, *violation) {
	name, b, ok := field(b)
	if !ok || string(name) != "MQTT" {
		return nil, errNotMQTT
	}
	if len(b) < 4 {
		return nil, malformed("CONNECT ends within its header")
	}
	version, flags := b[0], b[1]
	if version != 5 {
		return nil, &violation{code: codeUnsupportedVersion, reason: "only MQTT 5 is spoken here"}
	}
	c := &connect{
		keepAlive:      binary.BigEndian.Uint16(b[2:]),
		cleanStart:     flags&2 != 0,
		receiveMaximum: math.MaxUint16,
		maximumPacket:  math.MaxUint32,
	}
	hasWill, willQoS, willRetain := flags&4 != 0, flags>>3&3, flags&0x20 != 0
	switch {
	case flags&1 != 0: // [MQTT-3.1.2-3]
		return nil, malformed("CONNECT has its reserved flag set")
	case willQoS == 3: // [MQTT-3.1.2-12]
		return nil, malformed("CONNECT has Will QoS 3")
	case !hasWill && (willQoS != 0 || willRetain): // [MQTT-3.1.2-11], [MQTT-3.1.2-13]
		return nil, malformed("CONNECT has flags of a will and no will")
	}
	hasAuthData := false
	b, err := readProperties(CONNECT, b[4:], func(p property) *violation {
		switch p.id {
		case propSessionExpiry:
			c.sessionExpiry = p.number
		case propReceiveMaximum:
			c.receiveMaximum = uint16(p.number)
		case propMaximumPacketSize:
			c.maximumPacket = p.number
		case propRequestProblemInfo:
			c.hideProblemInfo = p.number == 0
		case propAuthMethod:
			c.authMethod, c.hasAuthMethod = string(p.data), true
		case propAuthData:
			hasAuthData = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if hasAuthData && !c.hasAuthMethod {
		return nil, forbidden("CONNECT has authentication data and no authentication method")
	}
	id, b, ok := field(b)
	if !ok || !wellFormed(id) {
		return nil, malformed("CONNECT has no well-formed Client Identifier")
	}
	c.clientID = string(id)
	if hasWill {
		if b, err = c.readWill(b, willQoS, willRetain); err != nil {
			return nil, err
		}
	}
	if flags&0x80 != 0 {
		var user []byte
		if user, b, ok = field(b); !ok || !wellFormed(user) {
			return nil, malformed("CONNECT has no well-formed User Name")
		}
		c.username = string(user)
	}
	if flags&0x40 != 0 {
		if c.password, b, ok = field(b); !ok {
			return nil, malformed("CONNECT ends within its password")
		}
		c.password = bytes.Clone(c.password)
	}
	if len(b) > 0 {
		return nil, malformed("CONNECT is longer than what it holds")
	}
	return c, nil
}

func (c *connect) readWill(b []byte, qos byte, retain bool) ([]byte, *violation) {
	m := &message{qos: qos, retain: retain}
	b, err := readProperties(will, b, func(p property) *violation {
		if p.id == propWillDelay {
			c.willDelay = p.number
			return nil
		}
		return m.take(p)
	})
	if err != nil {
		return nil, err
	}
	name, b, ok := field(b)
	if !ok || !wellFormed(name) {
		return nil, malformed("CONNECT has no well-formed Will Topic")
	}
	payload, b, ok := field(b)
	if !ok {
		return nil, malformed("CONNECT ends within its will")
	}
	m.topic, m.payload = string(name), bytes.Clone(payload)
	c.will = m
	return b, nil
}

// publish is a PUBLISH from a client (3.3). Its message is complete but for a topic that stands behind an alias.
type publish struct {
	message *message
	id      uint16
	dup     bool
	alias   uint16
	aliased bool
}

// decodePublish copies what it keeps.
func decodePublish(flags byte, b []byte) (p publish, err *violation) {
	qos := flags >> 1 & 3
	p.dup = flags&8 != 0
	switch {
	case qos == 3: // [MQTT-3.3.1-4]
		return p, malformed("PUBLISH has QoS 3")
	case qos == 0 && p.dup: // [MQTT-3.3.1-2]
		return p, forbidden("PUBLISH has DUP at QoS 0")
	}
	name, b, ok := field(b)
	if !ok || !wellFormed(name) {
		return p, malformed("PUBLISH has no well-formed topic")
	}
	if bytes.IndexByte(name, '+') >= 0 || bytes.IndexByte(name, '#') >= 0 { // [MQTT-3.3.2-2]
		return p, forbidden("PUBLISH has a topic with wildcards")
	}
	if qos > 0 {
		if len(b) < 2 {
			return p, malformed("PUBLISH ends within its Packet Identifier")
		}
		if p.id, b = binary.BigEndian.Uint16(b), b[2:]; p.id == 0 {
			return p, forbidden("PUBLISH has Packet Identifier 0")
		}
	}
	m := &message{qos: qos, retain: flags&1 != 0}
	m.body = append(make([]byte, 0, len(b)), b...) // properties and payload, which take what they keep as slices of it
	payload, err := readProperties(PUBLISH, m.body, func(q property) *violation {
		switch q.id {
		case propTopicAlias:
			p.alias, p.aliased = uint16(q.number), true
			return nil
		case propSubscriptionID: // [MQTT-3.3.4-6]
			return forbidden("PUBLISH from a client has a Subscription Identifier")
		}
		return m.take(q)
	})
	if err != nil {
		return p, err
	}
	m.topic, m.payload = string(name), payload
	p.message = m
	return p, nil
}

// filter is one filter of a SUBSCRIBE, with its options (3.8.3.1).
type filter struct {
	filter         string // as it stands in the packet
	group          string // of a shared subscription
	topicFilter    string // without the prefix of a shared subscription
	qos            byte
	noLocal        bool
	asPublished    bool
	retainHandling byte
	code           byte // of its refusal for what it is; 0 for none
}

type subscribe struct {
	id      uint16
	subID   uint32
	filters []filter
}

func decodeSubscribe(b []byte) (*subscribe, *violation) {
	s := &subscribe{}
	b, err := s.readHead(SUBSCRIBE, b)
	if err != nil {
		return nil, err
	}
	for len(b) > 0 {
		name, rest, ok := field(b)
		if !ok || len(rest) < 1 || !wellFormed(name) {
			return nil, malformed("SUBSCRIBE ends within a filter, or has one that is not well-formed")
		}
		options := rest[0]
		b = rest[1:]
		f := newFilter(string(name))
		f.qos, f.noLocal, f.asPublished, f.retainHandling = options&3, options&4 != 0, options&8 != 0, options>>4&3
		switch {
		case options&0xC0 != 0: // [MQTT-3.8.3-5]
			return nil, malformed("SUBSCRIBE has reserved bits set in the options of a filter")
		case f.qos == 3:
			return nil, forbidden("SUBSCRIBE asks for QoS 3")
		case f.retainHandling == 3:
			return nil, forbidden("SUBSCRIBE has Retain Handling 3")
		case f.noLocal && f.shared(): // [MQTT-3.8.3-4]
			return nil, forbidden("SUBSCRIBE has No Local on a shared subscription")
		}
		s.filters = append(s.filters, f)
	}
	if len(s.filters) == 0 { // [MQTT-3.8.3-2]
		return nil, forbidden("SUBSCRIBE has no filter")
	}
	return s, nil
}

func decodeUnsubscribe(b []byte) (*subscribe, *violation) {
	s := &subscribe{}
	b, err := s.readHead(UNSUBSCRIBE, b)
	if err != nil {
		return nil, err
	}
	for len(b) > 0 {
		name, rest, ok := field(b)
		if !ok || !wellFormed(name) {
			return nil, malformed("UNSUBSCRIBE ends within a filter, or has one that is not well-formed")
		}
		b = rest
		s.filters = append(s.filters, newFilter(string(name)))
	}
	if len(s.filters) == 0 { // [MQTT-3.10.3-2]
		return nil, forbidden("UNSUBSCRIBE has no filter")
	}
	return s, nil
}

func (s *subscribe) readHead(packet byte, b []byte) (rest []byte, err *violation) {
	if len(b) < 2 {
		return nil, malformed("%s ends within its Packet Identifier", TypeName(packet))
	}
	if s.id = binary.BigEndian.Uint16(b); s.id == 0 {
		return nil, forbidden("%s has Packet Identifier 0", TypeName(packet))
	}
	return readProperties(packet, b[2:], func(p property) *violation {
		if p.id == propSubscriptionID {
			s.subID = p.number
		}
		return nil
	})
}

func (f filter) shared() bool { return f.group != "" || strings.HasPrefix(f.filter, "$share/") }

// newFilter takes a filter apart and says whether it is one (4.7, 4.8.2).
func newFilter(s string) filter {
	f := filter{filter: s, topicFilter: s}
	if rest, ok := strings.CutPrefix(s, "$share/"); ok {
		f.group, f.topicFilter, _ = strings.Cut(rest, "/")
		if topic.ValidateGroup(f.group) != nil {
			f.code = codeFilterInvalid
		}
	}
	if topic.ValidateFilter(f.topicFilter) != nil {
		f.code = codeFilterInvalid
	}
	return f
}

// answer is a PUBACK, PUBREC, PUBREL or PUBCOMP from a client (3.4 to 3.7).
type answer struct {
	id   uint16
	code byte
}

func decodeAnswer(packet byte, b []byte) (a answer, err *violation) {
	if len(b) < 2 {
		return a, malformed("%s ends within its Packet Identifier", TypeName(packet))
	}
	if a.id = binary.BigEndian.Uint16(b); a.id == 0 {
		return a, forbidden("%s has Packet Identifier 0", TypeName(packet))
	}
	if b = b[2:]; len(b) == 0 {
		return a, nil
	}
	a.code = b[0]
	if !answerCode(packet, a.code) {
		return a, forbidden("%s has reason code 0x%02X, which is not one of its own", TypeName(packet), a.code)
	}
	return a, readRest(packet, b[1:])
}

// answerCode tells whether a client may give a code in a packet.
func answerCode(packet, code byte) bool {
	switch code {
	case codeSuccess:
		return true
	case codeUnspecified, 0x83, 0x87, codeTopicInvalid, codeIDInUse, codeQuotaExceeded, codePayloadInvalid: // 0x10 is for servers
		return packet == PUBACK || packet == PUBREC
	case codeIDNotFound:
		return packet == PUBREL || packet == PUBCOMP
	}
	return false
}

// readRest reads properties that may be left out and that say nothing to a server, up to the end of the packet.
func readRest(packet byte, b []byte) *violation {
	if len(b) == 0 {
		return nil
	}
	rest, err := readProperties(packet, b, func(property) *violation { return nil })
	if err == nil && len(rest) > 0 {
		err = malformed("%s is longer than what it holds", TypeName(packet))
	}
	return err
}

// disconnect is a DISCONNECT from a client (3.14).
type disconnect struct {
	code      byte
	expiry    uint32
	hasExpiry bool
}

func decodeDisconnect(b []byte) (d disconnect, err *violation) {
	if len(b) == 0 {
		return d, nil
	}
	d.code = b[0]
	if d.code != 0 && d.code != codeWithWill && d.code < codeUnspecified {
		return d, forbidden("DISCONNECT has reason code 0x%02X, which is not one of its own", d.code)
	}
	if b = b[1:]; len(b) == 0 {
		return d, nil
	}
	b, err = readProperties(DISCONNECT, b, func(p property) *violation {
		if p.id == propSessionExpiry {
			d.expiry, d.hasExpiry = p.number, true
		}
		return nil
	})
	if err == nil && len(b) > 0 {
		err = malformed("DISCONNECT is longer than what it holds")
	}
	return d, err
}
