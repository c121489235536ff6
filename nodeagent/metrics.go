package nodeagent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/controller"
)

// instanceMetrics counts the instances by state when it is asked.
type instanceMetrics struct {
	controller *controller.Controller
	desc       *prometheus.Desc
}

func registerMetrics(reg prometheus.Registerer, c *controller.Controller) error {
	if reg == nil {
		return nil
	}
	return reg.Register(&instanceMetrics{c, prometheus.NewDesc(
		"orrery_nodeagent_instances", "Instances this node knows, by state.", []string{"state"}, nil)})
}

// Describe implements prometheus.Collector.
func (m *instanceMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.desc }

// Collect implements prometheus.Collector.
func (m *instanceMetrics) Collect(ch chan<- prometheus.Metric) {
	counts := m.controller.Instances()
	for _, s := range fleet.States {
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(counts[s]), string(s))
	}
}
