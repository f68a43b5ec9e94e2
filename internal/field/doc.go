// Package field is what goes wrong in the field, provoked: each failure that people who run MQTT consumers have reported, as far as a server can
// provoke it, in a test through testkit that is named after its id. There is nothing in it but tests.
//
// A file is a chapter of the reports. ids_test.go has the table of them all: the tests of each id, or why no server can provoke it and where else it is
// held.
package field
