package settle

import (
	"strconv"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle/internal/topic"
)

// The user properties that we add to retry copies and dead letters. They are believed on our own retry topics alone.
const (
	headerMessageID = headerPrefix + "message-id"     // one for all copies of a message
	headerCopyID    = headerPrefix + "copy-id"        // one for each attempt; kept when the copy is put behind others
	headerAttempt   = headerPrefix + "attempt"        // the attempts made so far
	headerTopic     = headerPrefix + "original-topic" // where the message was first published to
	headerNotBefore = headerPrefix + "not-before"     // when it is due, RFC 3339
	headerDelay     = headerPrefix + "delay-ms"       // how long that is from when it was published: bounds the wait where clocks disagree
	headerReason    = headerPrefix + "reason"         // why the last attempt failed
	headerRoute     = headerPrefix + "route"          // the route's name
	headerOwner     = headerPrefix + "owner"          // the client id of who published it
	headerRetained  = headerPrefix + "retained"       // "1": the message was delivered as a retained one
	headerMarker    = headerPrefix + "marker"         // not a copy: shows that the queue before it has been delivered
	headerStub      = headerPrefix + "stub"           // why the payload is missing
)

// copyHeaders is what our headers say about a retry copy.
type copyHeaders struct {
	messageID, copyID string
	attempt           int // made so far
	topic             string
	notBefore         time.Time
	delay             time.Duration
	route, owner      string
	retained          bool
	marker            string
	reason            string
}

// mostAttempts is the largest number of attempts that is believed: one more has to be a number too.
const mostAttempts = 1 << 30

// parseCopyHeaders reads our headers. Where neither a copy nor a marker is named, it returns nil: an ordinary message.
func parseCopyHeaders(a *arrival) *copyHeaders {
	h := &copyHeaders{topic: a.Publish.Topic, attempt: 1}
	for name, value := range a.UserProperties() {
		if !strings.HasPrefix(name, headerPrefix) {
			continue
		}
		switch name {
		case headerMessageID:
			h.messageID = value
		case headerCopyID:
			h.copyID = value
		case headerAttempt:
			if n, err := strconv.Atoi(value); err == nil && n > 0 {
				h.attempt = min(n, mostAttempts)
			}
		case headerTopic:
			if topic.ValidateTopic(value) == nil {
				h.topic = value
			}
		case headerNotBefore:
			h.notBefore, _ = time.Parse(time.RFC3339Nano, value) // the zero time is due at once
		case headerDelay:
			if ms, err := strconv.ParseInt(value, 10, 64); err == nil && ms > 0 && ms <= int64(maxDelay/time.Millisecond)*2 {
				h.delay = time.Duration(ms) * time.Millisecond
			}
		case headerRoute:
			h.route = value
		case headerOwner:
			h.owner = value
		case headerRetained:
			h.retained = value == "1"
		case headerReason:
			h.reason = value
		case headerMarker:
			h.marker = value
		}
	}
	if h.copyID == "" && h.marker == "" {
		return nil
	}
	return h
}

// isForeignCopy says that a message on the main connection is the retry copy of somebody else's route, who published it to
// a topic inside our filter: it is not a message for us.
func isForeignCopy(a *arrival) bool {
	if _, copied := a.UserProperty(headerCopyID); !copied {
		return false
	}
	// A copy is never on the topic that its message was first published to; one that somebody has put back there is a message.
	original, known := a.UserProperty(headerTopic)
	return known && original != a.Publish.Topic
}

// wait is how long a copy that arrived now has to wait.
func (h *copyHeaders) wait() time.Duration {
	return min(max(time.Until(h.notBefore), 0), h.delay)
}

// basePacket is what a retry copy and a dead letter keep of the message: all of it but Retain and our own headers.
func (d *Delivery) basePacket(to string, attempts int) *paho.Publish {
	a := d.arrival
	p := &paho.Publish{
		Topic:   to,
		QoS:     byte(AtLeastOnce),
		Payload: a.Publish.Payload,
		Properties: &paho.PublishProperties{
			ContentType:     a.Publish.ContentType,
			ResponseTopic:   a.Publish.ResponseTopic,
			CorrelationData: a.Publish.CorrelationData,
		},
	}
	if a.HasPayloadFormat {
		format := a.PayloadFormat
		p.Properties.PayloadFormat = &format
	}
	for name, value := range d.Headers() {
		p.Properties.User.Add(name, value)
	}
	add := p.Properties.User.Add
	add(headerMessageID, d.MessageID())
	add(headerAttempt, strconv.Itoa(attempts))
	add(headerTopic, d.Topic())
	add(headerRoute, d.route.name)
	add(headerOwner, d.route.app.config.ClientID)
	if d.Retained() {
		add(headerRetained, "1")
	}
	return p
}

// retryPacket is the retry copy after so many attempts, due at the given time.
func (d *Delivery) retryPacket(copyID string, attempts int, due time.Time, cause string) *paho.Publish {
	p := d.basePacket(d.route.retryTo, attempts)
	wait := max(time.Until(due), 0)
	add := p.Properties.User.Add
	add(headerCopyID, copyID)
	add(headerNotBefore, time.Now().Add(wait).UTC().Format(time.RFC3339Nano))
	add(headerDelay, strconv.FormatInt((wait+time.Millisecond-1).Milliseconds(), 10))
	if cause != "" {
		add(headerReason, cause)
	}
	if left, expires := d.expiry(); expires {
		p.Properties.MessageExpiry = &left
	}
	return p
}

// deadPacket is the dead letter. It does not expire: somebody is to look at it.
func (d *Delivery) deadPacket(cause string) *paho.Publish {
	p := d.basePacket(d.route.deadLetterTo, d.attempt)
	if cause != "" {
		p.Properties.User.Add(headerReason, cause)
	}
	if size := d.arrival.Frame.Oversize; size > 0 {
		p.Properties.User.Add(headerStub, "a payload of "+strconv.Itoa(size)+" bytes exceeded MaxPayload and was not kept")
	}
	return p
}

// stubPacket is the dead letter of a message that is too large for the server to take back: all but its payload and headers.
func (d *Delivery) stubPacket(cause string) *paho.Publish {
	p := d.deadPacket(cause)
	var own paho.UserProperties
	for _, u := range p.Properties.User {
		if isOwnHeader(u.Key) && u.Key != headerStub {
			own = append(own, u)
		}
	}
	own.Add(headerStub, "a payload of "+strconv.Itoa(len(p.Payload))+" bytes exceeds the server's Maximum Packet Size")
	p.Payload, p.Properties = nil, &paho.PublishProperties{ContentType: p.Properties.ContentType, User: own}
	return p
}

// expiry is what is left of the Message Expiry Interval, in seconds: at least one, since the message came while it was valid.
func (d *Delivery) expiry() (left uint32, expires bool) {
	a := d.arrival
	if !a.HasExpiry {
		return 0, false
	}
	waited := uint32(min((d.route.app.now()-time.Duration(a.At))/time.Second, 1<<31)) //nolint:gosec // bounded
	if a.Expiry <= waited {
		return 1, true
	}
	return a.Expiry - waited, true
}
