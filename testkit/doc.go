// Package testkit runs a production App, unchanged, against an MQTT 5 server in this process, and tells a test what became of
// each message: in milliseconds, with sessions that resume, redelivery, windows, retained messages, shared groups and delayed
// retries as a strict server has them.
//
//	kit := testkit.Start(t, app) // overrides where the app dials, nothing else
//	kit.Publish("meters/42/usage", Usage{Meter: "42", KWh: 1.5})
//	got := kit.Settled("meters/+/usage", 1)[0] // waits for it
//
// A wait ends as soon as what it waits for is there. One that ends without it fails the test and says what there was instead. Inside
// a testing/synctest bubble waits run on fake time, so five minutes of backoff pass in none. Everything is stopped by t.Cleanup, and
// when the test has failed its log ends with what went over the wire.
//
// [StartOn] gives the app a server that the test has made, to share it, keep it over a restart, or have it misbehave: see [Broker].
// [StartLive] runs the same test on a real server. [Attach] and [Module] record an app that something else starts. And a handler is
// a function: [Context] and [Delivery] call it with no server at all.
//
// A Kit and a Broker belong to the test that made them. Their methods may be called from any goroutine, but those that wait or can fail the test
// only from the test's own, as testing.TB wants it.
package testkit
