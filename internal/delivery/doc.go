// Package delivery is the delivery suite: the guarantees of docs/guarantees.md, each as a scenario whose body runs on the in-process server, under
// fake time, and on Mosquitto, by testkit's StartOn and StartLive. There is nothing in it but tests.
//
// A guarantee that only one kind of server can show is elsewhere: what needs a process killed or a link cut at a byte is in
// internal/live, what needs a server that misbehaves is in internal/field, by the ids of the reports from the field, and with the root package.
package delivery
