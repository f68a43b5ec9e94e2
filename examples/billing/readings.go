package main

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// readings are the service's metrics at one moment, by name, as anybody sees them on /metrics.
type readings map[string]*dto.MetricFamily

func read(g prometheus.Gatherer) (readings, error) {
	families, err := g.Gather()
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	r := make(readings, len(families))
	for _, f := range families {
		r[f.GetName()] = f
	}
	return r, nil
}

// sum adds up the series of a counter or a gauge that have all the given labels, which come in pairs of name and value.
func (r readings) sum(name string, labels ...string) int64 {
	var total float64
	for _, m := range r[name].GetMetric() {
		if hasLabels(m, labels) {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return int64(total)
}

func hasLabels(m *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, l := range m.GetLabel() {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}
