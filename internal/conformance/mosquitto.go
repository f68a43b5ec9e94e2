package conformance

// Mosquitto2 are the deviations of Mosquitto 2.0.11.
var Mosquitto2 = []Deviation{}
