// Package wire is the inbound path of an MQTT 5 client at the level of frames: it cuts the stream that
// a server sends into control packets, reads PUBLISH, PUBREL, CONNACK and DISCONNECT, checks the
// structure of all others, and encodes the short packets that answer.
//
// It knows nothing of handlers, windows or connections, and keeps no state but the Scanner's buffer.
//
// Three decisions shape it:
//
//   - A frame's bytes are never written to again. A [Publish] is therefore a view into its [Frame], and
//     its strings and slices stay valid for as long as somebody holds them: a handler that outlived its
//     timeout may still read its payload.
//   - Nothing is allocated by a length that the peer merely claims. Memory grows with the bytes that
//     have come, up to [Limits].
//   - What breaks the protocol is an [*Error] that carries the reason code for the DISCONNECT; what is
//     legal but strange passes. A mistake that a publisher can make and that servers are known to pass
//     on (a response topic with wildcards, properties of a megabyte) is no error here: the same message
//     would come again on the next connection, and end that one too.
//
// Section numbers in comments refer to the OASIS standard "MQTT Version 5.0".
package wire
