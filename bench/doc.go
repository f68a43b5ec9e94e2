// Command bench measures how fast a consumer works off a backlog: QoS 1, 512-byte JSON that is decoded, one lane, a
// Mosquitto of its own on this machine. It runs the same backlog through paho.golang's own consumer, through Settle, and through
// a loop written by hand, which is the limit; each in a process of its own, one after the other, several times in turn.
//
// The figures are for comparing within one run. Run it on a machine that does nothing else.
package main
