package settle

import "strconv"

// DeadLetter is what a dead letter says about the message that it is, for a program that reads the topic of [DeadLetterTo].
type DeadLetter struct {
	Reason        string // why the last attempt failed, or why the message was rejected
	Attempts      int    // how many attempts were made
	OriginalTopic string // where the message was first published
	Route         string // the name of the route that gave it up
	MessageID     string // the message's id, which its retry copies had too
	Stub          string // why the payload is missing; empty where it is there
}

// DeadLetter tells whether the delivery is a dead letter, and what it says. What it says is what its publisher wrote: anybody who may
// publish to the topic can write it, so it is for people and for statistics.
func (d *Delivery) DeadLetter() (letter DeadLetter, ok bool) {
	if d == nil || d.arrival.copied != nil {
		return DeadLetter{}, false
	}
	for name, value := range d.arrival.UserProperties() {
		switch name {
		case headerReason:
			letter.Reason = value
		case headerAttempt:
			letter.Attempts, _ = strconv.Atoi(value) // 0 where it is no number
		case headerTopic:
			letter.OriginalTopic = value
		case headerRoute:
			letter.Route = value
		case headerMessageID:
			letter.MessageID = value
		case headerStub:
			letter.Stub = value
		}
	}
	if letter.OriginalTopic == "" || letter.Route == "" {
		return DeadLetter{}, false
	}
	return letter, true
}
