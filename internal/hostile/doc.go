// Package hostile has the control packets of MQTT 5 as data, and makes of it every odd and every broken form of each: what a
// receiver has to take although nobody sends it, and what it has to refuse. Its tests have a server say all of it to a live App,
// in each phase of a connection, and a client say all of it to the in-process server.
//
//	for _, c := range hostile.Cases(hostile.Server, "a/b") {
//		// c.Bytes is to be sent; c.Wrong has the reason codes that may answer it, and is empty where it is legal
//	}
//
// Cases are enumerated and not drawn: the same ones come each time, and each has a name of its own.
//
//	packets.go      the fifteen control packets: flags, fields, reason codes (MQTT 5, chapter 3; 2.4)
//	properties.go   table 2-4: which property stands where, and what its value may be
//	values.go       the odd and the wrong values of each data type (1.5)
//	build.go        a packet put together from its parts, any of which can be another
//	legal.go        the odd forms
//	wrong.go        the broken ones
//	clients.go      both, of what only clients send
//	case.go         what is made of it: bytes, a name, what may answer them
//	message.go      what a receiver is to find in a PUBLISH
//
// Nothing here knows how this library reads a packet; section numbers in comments refer to the OASIS standard "MQTT Version 5.0".
package hostile
