// Package sampler samples the node and its instances every 15 seconds and keeps the samples of a
// day in memory. They are lost when the agent ends.
package sampler

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
)

const (
	// maxInstances bounds the sampled instances, at 36 KiB each.
	maxInstances = 2000
	// maxMetricsAge is the age from which an instance's own metrics are ignored.
	maxMetricsAge = 2 * time.Minute
)

// Config configures a Sampler. All fields are required.
type Config struct {
	// Live are the node's instances.
	Live func() map[fleet.InstanceID]driver.Live
	// Measured returns an instance's own metrics, or an error if there are none.
	Measured func(fleet.InstanceID) (client.Measured, error)
	// Usage measures memory and CPU time of runs by the process ids of their servers. Used
	// receives the results.
	Usage func(now time.Time, servers map[fleet.InstanceID]int) map[fleet.InstanceID]reports.Usage
	Used  func(id fleet.InstanceID, server int, u reports.Usage)
	// CPU is the used share of the host's processors since the last call. Memory is the
	// host's used memory in MiB.
	CPU    func() float64
	Memory func() int
}

// Sampler holds the samples of a node and its instances.
type Sampler struct {
	cfg  Config
	node *series.Ring

	mu sync.Mutex
	// cpuStarted is set after the first sample, which has no share of the processors.
	cpuStarted bool
	instances  map[fleet.InstanceID]*instance
}

// instance holds the samples of an instance and its latest own metrics.
type instance struct {
	ring       *series.Ring
	at         time.Time
	ownMetrics ownMetrics
}

// ownMetrics are the sampled ones of an instance's own metrics; nil if it does not report them.
type ownMetrics struct {
	TPS  *float64 `json:"tps1m"`
	MSPT *float64 `json:"msptAvg"`
	Heap *float64 `json:"heapUsedMb"`
}

// New returns a Sampler. Run starts it.
func New(cfg Config) *Sampler {
	return &Sampler{cfg: cfg, node: series.New("cpuUsage", "usedMemoryMb", "instanceCount"), instances: map[fleet.InstanceID]*instance{}}
}

// Run samples until ctx ends.
func (s *Sampler) Run(ctx context.Context) { series.Every(ctx, s.sample) }

// sample takes one sample of everything.
func (s *Sampler) sample(at time.Time) {
	live := s.cfg.Live()
	s.measure(at, live)
	running := 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.instances {
		if _, known := live[id]; !known {
			delete(s.instances, id)
		}
	}
	for id, l := range live {
		if !l.Status.State.Running() {
			continue
		}
		running++
		p := s.instances[id]
		if p == nil {
			if len(s.instances) >= maxInstances {
				continue
			}
			p = &instance{ring: series.New(client.InstanceSeries()...)}
			s.instances[id] = p
		}
		s.add(p, at, l)
	}
	cpu := s.cfg.CPU()
	if !s.cpuStarted {
		s.cpuStarted, cpu = true, math.NaN()
	}
	s.node.Add(at, cpu, float64(s.cfg.Memory()), float64(running))
}

// measure measures the usage of all runs, reports it, and adds it to live.
func (s *Sampler) measure(at time.Time, live map[fleet.InstanceID]driver.Live) {
	servers := map[fleet.InstanceID]int{}
	for id, l := range live {
		if l.Status.PID != 0 {
			servers[id] = l.Status.PID
		}
	}
	used := s.cfg.Usage(at, servers)
	for id, server := range servers {
		l := live[id]
		disk := l.Report.Usage.DiskOnly()
		l.Report.Usage = used[id]
		l.Report.Usage.DiskBytes, l.Report.Usage.DiskKnown = disk.DiskBytes, disk.DiskKnown
		live[id] = l
		s.cfg.Used(id, server, used[id])
	}
}

// add adds a sample of a running instance.
func (s *Sampler) add(p *instance, at time.Time, l driver.Live) {
	m, err := s.cfg.Measured(l.Status.Instance)
	switch {
	case err != nil || m.Proxy || at.Sub(m.At) > maxMetricsAge:
		p.ownMetrics, p.at = ownMetrics{}, time.Time{}
	case !m.At.Equal(p.at):
		p.ownMetrics, p.at = ownMetrics{}, m.At
		if json.Unmarshal(m.Figures, &p.ownMetrics) != nil { // valid JSON, but not our metrics
			p.ownMetrics = ownMetrics{}
		}
	}
	players, tps := math.NaN(), orUnknown(p.ownMetrics.TPS)
	if l.Report.PlayersKnown {
		players = float64(l.Report.Players)
	}
	if p.ownMetrics.TPS == nil && l.Report.TPS > 0 {
		tps = l.Report.TPS
	}
	up := math.NaN()
	if l.Status.PID != 0 && !l.Status.StartedAt.IsZero() {
		up = float64(max(0, at.Sub(l.Status.StartedAt)).Milliseconds())
	}
	u := l.Report.Usage
	p.ring.Add(at, tps, orUnknown(p.ownMetrics.MSPT), orUnknown(p.ownMetrics.Heap), players, orUnknown(u.UsedMemory()), orUnknown(u.UsedCPU()), orUnknown(u.UsedDisk()), up)
}

func orUnknown[T int64 | float64](v *T) float64 {
	if v == nil {
		return math.NaN()
	}
	return float64(*v)
}

// Node returns the samples of the node.
func (s *Sampler) Node(now time.Time, w series.Window) series.Figures { return s.node.Read(now, w) }

// Instance returns the samples of an instance. NotFound if there are none.
func (s *Sampler) Instance(id fleet.InstanceID, now time.Time, w series.Window) (series.Figures, error) {
	s.mu.Lock()
	p := s.instances[id]
	s.mu.Unlock()
	if p == nil {
		return series.Figures{}, errs.New(errs.NotFound, "there are no samples of instance %s on this node yet", id)
	}
	return p.ring.Read(now, w), nil
}
