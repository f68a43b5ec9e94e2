package chaos

import "fmt"

// Reason is why a handler was called again for what it had been called for.
type Reason uint8

// The reasons.
const (
	firstCall Reason = iota

	ProcessKilled  // kind 1 of docs/guarantees.md, by SIGKILL
	ProcessStopped // the same by SIGTERM: its connection was not up, or what stood before it had not been acknowledged
	AckOnLostWire  // kind 3
	EarlySecondCut // kind 4
	SessionLost    // kind 6
	Misfit         // the same
	CopySentTwice  // kind 7: the publish of a copy was not answered and made again, and the first was handled by then
	ServerRepeated // a fault of Mosquitto 2.0.11: a PUBLISH that had been answered by PUBREC, sent to the next process
	FollowsAnother // its attempt before was handled twice, and each call failed; kind 2 ends so

	AckWithWorkBehind // kind 3, although what was in work behind it proved that it was old: a failure
	Unexplained       // a failure

	reasons
)

var reasonNames = [reasons]string{
	ProcessKilled:     "the process was killed",
	ProcessStopped:    "the process was stopped without a connection, or with work before it",
	AckOnLostWire:     "acknowledged on a connection that was lost, nothing in work behind it",
	EarlySecondCut:    "not shown again by a connection that was cut early",
	SessionLost:       "the server had lost the session",
	Misfit:            "the server did not send again in its order",
	CopySentTwice:     "its copy was published twice, as an answer was lost",
	ServerRepeated:    "at QoS 2, the server sent again what PUBREC had answered",
	FollowsAnother:    "the attempt before was handled twice",
	AckWithWorkBehind: "acknowledged on a connection that was lost, work behind it",
	Unexplained:       "no reason found",
}

// String says it in a few words.
func (r Reason) String() string { return reasonNames[r] }

// MarshalText implements encoding.TextMarshaler.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// byCut says that a connection was lost while the process lived.
func (r Reason) byCut() bool {
	switch r {
	case AckOnLostWire, EarlySecondCut, SessionLost, Misfit, CopySentTwice, AckWithWorkBehind, Unexplained:
		return true
	}
	return false
}

// Account is what has become of all messages. Figures that must be 0 are failures where they are not.
type Account struct {
	Messages int `json:"messages"` // sendings that the server accepted
	Nowhere  int `json:"nowhere"`  // sendings that it refused, as nobody subscribed: a group after a restart
	Calls    int `json:"calls"`    // of handlers
	Retries  int `json:"retries"`  // calls for an attempt beyond the first

	Lost       int `json:"lost"`         // neither acknowledged by a handler nor a dead letter; must be 0
	Left       int `json:"left"`         // deliveries that nobody acknowledged in the end; must be 0
	OutOfOrder int `json:"out_of_order"` // first calls that were overtaken by one of their key; must be 0
	Disorder   int `json:"disorder"`     // first calls in an order that was the server\'s own, against MQTT-4.6.0-6
	AtOnce     int `json:"at_once"`      // calls while another of their key ran; must be 0

	Acks        int `json:"acks"`         // PUBACKs and PUBRECs
	AckTooEarly int `json:"ack_early"`    // before an outcome, or before its copy or dead letter was confirmed; must be 0
	AckOutTurn  int `json:"ack_out_turn"` // not in the order of arrival; must be 0
	AckUnknown  int `json:"ack_unknown"`  // under an identifier that the connection had not shown; must be 0

	Copies      int `json:"copies"`       // retry copies whose publish was confirmed
	CopiesLost  int `json:"copies_lost"`  // of these, those that never came back; must be 0
	CopiesFalse int `json:"copies_false"` // copies and dead letters of a message that had not failed; must be 0

	Dead        int `json:"dead"`          // messages with a dead letter
	DeadMissing int `json:"dead_missing"`  // those that should have one; must be 0
	DeadWrong   int `json:"dead_wrong"`    // those that should have none; must be 0
	DeadAgain   int `json:"dead_again"`    // dead letters beyond the first of a message, published twice or handled twice
	DeadUnasked int `json:"dead_unasked"`  // such that nobody had published; must be 0
	TwiceBySend int `json:"twice_by_send"` // messages that a publisher sent again though the server had them: kind 9

	Unacked map[string]int `json:"unacked"` // by stream: the most deliveries that were unacknowledged on a main connection

	Twice     map[Reason]int `json:"twice"`      // calls for what had been called for
	FullLoad  Share          `json:"full_load"`  // first attempts, while many others were in work on their connection, or when it was lost
	OtherLoad Share          `json:"other_load"` // the others, and retries

	exampled map[string]int // examples by kind
	Strange  []string       `json:"strange,omitempty"`
	Examples []string       `json:"examples,omitempty"` // of what should not be
}

// Share is how many calls were made again because of a cut while their process lived.
type Share struct {
	Messages int            `json:"messages"`
	Twice    int            `json:"twice"`
	By       map[Reason]int `json:"by"`
}

// share is the one that a message belongs to which was handled, or lost its connection, while so many were in work.
func (a *Account) share(inWork int) *Share {
	if inWork >= fullEnough {
		return &a.FullLoad
	}
	return &a.OtherLoad
}

func (s *Share) add(why Reason) {
	s.Twice++
	s.By[why]++
}

const maxExamples = 4 // of a kind

// wants says that there are not enough examples of a kind; each kind has a format of its own.
func (a *Account) wants(format string) bool { return a.exampled[format] < maxExamples }

func (a *Account) example(format string, args ...any) {
	if a.wants(format) {
		a.exampled[format]++
		a.Examples = append(a.Examples, fmt.Sprintf(format, args...))
	}
}

// mustBeZero are the figures that have no excuse.
func (a *Account) mustBeZero() []Figure {
	return []Figure{
		{"lost", a.Lost},
		{"not acknowledged in the end", a.Left},
		{"out of order within a key", a.OutOfOrder},
		{"at once with another of their key", a.AtOnce},
		{"acknowledged too early", a.AckTooEarly},
		{"acknowledged out of turn", a.AckOutTurn},
		{"acknowledged on another connection", a.AckUnknown},
		{"retry copies lost", a.CopiesLost},
		{"copies or dead letters of what had not failed", a.CopiesFalse},
		{"dead letters missing", a.DeadMissing},
		{"dead letters of what should have none", a.DeadWrong},
		{"dead letters that nobody published", a.DeadUnasked},
		{"handled again: " + AckWithWorkBehind.String(), a.Twice[AckWithWorkBehind]},
		{"handled again: " + Unexplained.String(), a.Twice[Unexplained]},
		{"things that nobody understands", len(a.Strange)},
	}
}

// Figure is a number and what it counts.
type Figure struct {
	What string
	N    int
}
