// Package mosquitto runs a Mosquitto server of its own for the live tests and the demo: on a free port of 127.0.0.1, with its own
// folder and configuration, to be killed and started again as the test likes. It never touches a server that it did not start.
package mosquitto
