// Package conformance says what Settle relies on from a server, section by section of the standard, as checks that run against anything
// that can be dialled. There is no Settle in it: its clients speak by paho's packets package, packet by packet.
//
// One suite runs on the in-process server, which passes all of it, and on real ones. Where a real server is known to differ, the
// difference is declared by the check's name, with what is seen and what follows from it: see [Deviation]. An undeclared
// failure fails the test, and so does a declared one that passes, or that fails in another way than was declared.
//
// A check that passes at a server that another one fails at is no blame: some of what is asked for here the standard leaves open,
// and Settle is built to do without. The table of a server's deviations is what to read before it is used.
//
// Section numbers refer to the OASIS standard "MQTT Version 5.0".
package conformance
