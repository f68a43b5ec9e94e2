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

// The topics. The second level of the first two is the meter.
const (
	usageFilter = "meters/+/usage"
	powerFilter = "meters/+/power"
	retryTopic  = "billing/retry/usage" // the service's own way back to itself
	deadTopic   = "billing/dead/usage"  // for a person to look at
)

func usageTopic(meter string) string { return "meters/" + meter + "/usage" }
func powerTopic(meter string) string { return "meters/" + meter + "/power" }
