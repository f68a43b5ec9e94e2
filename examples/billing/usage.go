package main

// Usage is what a meter reports once in a while: how much was used since its last report. The service bills it.
type Usage struct {
	Meter string  `json:"meter"`
	KWh   float64 `json:"kwh"`
}

// Sample is what a meter measures all the time: the power at this moment. The service charts it.
type Sample struct {
	Meter string  `json:"meter"`
	Watts float64 `json:"watts"`
}

// What the service subscribes to. The second level is the meter.
const (
	usageFilter = "meters/+/usage"
	powerFilter = "meters/+/power"
)

func usageTopic(meter string) string { return "meters/" + meter + "/usage" }
func powerTopic(meter string) string { return "meters/" + meter + "/power" }

// retryTopic is the service's way back to itself. Nobody else may use it, so it has the client identifier in it.
func retryTopic(clientID string) string { return clientID + "/retry/usage" }

// deadTopic is for what a person has to look at.
func deadTopic(clientID string) string { return clientID + "/dead/usage" }
