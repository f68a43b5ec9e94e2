package link

import "slices"

// State is where a link is in its life.
type State uint8

// The states of a link.
const (
	Idle        State = iota // Run has not been called
	Dialling                 // waits for room, asks for credentials, opens the network connection
	Connecting               // CONNECT is sent, CONNACK has not come
	Subscribing              // an epoch has begun; publishing works, grants are awaited
	Up                       // every subscription is granted
	Draining                 // our DISCONNECT is sent, or about to be; the server's end is awaited
	Waiting                  // backs off
	Ended                    // Run has returned, or will at once
)

// successors is the whole machine. That a connection is lost leads to Waiting from everywhere.
var successors = map[State][]State{
	Idle:        {Dialling, Ended},
	Dialling:    {Connecting, Waiting, Ended},
	Connecting:  {Subscribing, Draining, Waiting, Ended},
	Subscribing: {Up, Draining, Waiting, Ended},
	Up:          {Draining, Waiting, Ended},
	Draining:    {Waiting, Ended},
	Waiting:     {Dialling, Ended},
	Ended:       {},
}

var stateNames = [...]string{"idle", "dialling", "connecting", "subscribing", "up", "draining", "waiting", "ended"}

// String is the state's name in logs and docs.
func (s State) String() string { return stateNames[s] }

// may reports whether next may follow. Of two who want to move at once one is late: a connection that a Close drains does
// not come up any more.
func (s State) may(next State) bool { return slices.Contains(successors[s], next) }
