// Package gauge looks at the node and at its instances every 15 seconds, and keeps a day of
// what it saw. It keeps that in memory: the next agent begins anew, and says since when.
package gauge

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/supervise"
)

const (
	// maxInstances bounds the instances that are gauged, at 36 KiB each; those beyond have no past.
	maxInstances = 2000
	// stale is how old what an instance measured may be to be its figures still.
	stale = 2 * time.Minute
)

// Config is what a gauge looks at. All are required.
type Config struct {
	// Live are the node's instances.
	Live func() map[fleet.InstanceID]supervise.Live
	// Measured is what an instance last measured of itself; an error when it told nothing.
	Measured func(fleet.InstanceID) (supervise.Measured, error)
	// Usage measures memory and processor time of runs, given by the process ids of their
	// servers. Used takes what it finds.
	Usage func(now time.Time, servers map[fleet.InstanceID]int) map[fleet.InstanceID]fleet.Usage
	Used  func(id fleet.InstanceID, server int, u fleet.Usage)
	// CPU is the share of the host's processors in use since the call before, Memory the
	// host's memory in use in MiB.
	CPU    func() float64
	Memory func() int
}

// Gauge keeps the past of a node and of its instances.
type Gauge struct {
	cfg  Config
	node *series.Ring

	mu sync.Mutex
	// begun is true once there was a look that the next one's share of the processors counts from.
	begun     bool
	instances map[fleet.InstanceID]*past
}

// past is an instance's, with what it last measured.
type past struct {
	ring *series.Ring
	at   time.Time
	told told
}

// told are those of an instance's own figures that are kept; nil where it did not tell.
type told struct {
	TPS  *float64 `json:"tps1m"`
	MSPT *float64 `json:"msptAvg"`
	Heap *float64 `json:"heapUsedMb"`
}

// New makes a gauge that waits for Run.
func New(cfg Config) *Gauge {
	return &Gauge{cfg: cfg, node: series.New("cpuUsage", "usedMemoryMb", "instanceCount"), instances: map[fleet.InstanceID]*past{}}
}

// Run looks until ctx ends.
func (g *Gauge) Run(ctx context.Context) { series.Every(ctx, g.look) }

// look takes one sample of everything.
func (g *Gauge) look(at time.Time) {
	live := g.cfg.Live()
	g.measure(at, live)
	running := 0
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.instances {
		if _, known := live[id]; !known {
			delete(g.instances, id)
		}
	}
	for id, l := range live {
		if !l.Status.State.Running() {
			continue
		}
		running++
		p := g.instances[id]
		if p == nil {
			if len(g.instances) >= maxInstances {
				continue
			}
			p = &past{ring: series.New(client.InstanceSeries()...)}
			g.instances[id] = p
		}
		g.sample(p, at, l)
	}
	cpu := g.cfg.CPU()
	if !g.begun {
		g.begun, cpu = true, math.NaN()
	}
	g.node.Add(at, cpu, float64(g.cfg.Memory()), float64(running))
}

// measure measures what every run uses, tells it, and adds it to live.
func (g *Gauge) measure(at time.Time, live map[fleet.InstanceID]supervise.Live) {
	servers := map[fleet.InstanceID]int{}
	for id, l := range live {
		if l.Status.PID != 0 {
			servers[id] = l.Status.PID
		}
	}
	used := g.cfg.Usage(at, servers)
	for id, server := range servers {
		l := live[id]
		disk := l.Report.Usage.DiskOnly()
		l.Report.Usage = used[id]
		l.Report.Usage.DiskBytes, l.Report.Usage.DiskKnown = disk.DiskBytes, disk.DiskKnown
		live[id] = l
		g.cfg.Used(id, server, used[id])
	}
}

// sample takes one of a running instance.
func (g *Gauge) sample(p *past, at time.Time, l supervise.Live) {
	m, err := g.cfg.Measured(l.Status.Instance)
	switch {
	case err != nil || m.Proxy || at.Sub(m.At) > stale:
		p.told, p.at = told{}, time.Time{}
	case !m.At.Equal(p.at):
		p.told, p.at = told{}, m.At
		if json.Unmarshal(m.Figures, &p.told) != nil { // whoever passed them on has read them: these are no figures of ours
			p.told = told{}
		}
	}
	players, tps := math.NaN(), orUnknown(p.told.TPS)
	if l.Report.PlayersKnown {
		players = float64(l.Report.Players)
	}
	if p.told.TPS == nil && l.Report.TPS > 0 {
		tps = l.Report.TPS
	}
	up := math.NaN()
	if l.Status.PID != 0 && !l.Status.StartedAt.IsZero() {
		up = float64(max(0, at.Sub(l.Status.StartedAt)).Milliseconds())
	}
	u := l.Report.Usage
	p.ring.Add(at, tps, orUnknown(p.told.MSPT), orUnknown(p.told.Heap), players, orUnknown(u.UsedMemory()), orUnknown(u.UsedCPU()), orUnknown(u.UsedDisk()), up)
}

func orUnknown[T int64 | float64](v *T) float64 {
	if v == nil {
		return math.NaN()
	}
	return float64(*v)
}

// Node is the past of the node.
func (g *Gauge) Node(now time.Time, w series.Window) series.Figures { return g.node.Read(now, w) }

// Instance is the past of an instance. NotFound when none is known.
func (g *Gauge) Instance(id fleet.InstanceID, now time.Time, w series.Window) (series.Figures, error) {
	g.mu.Lock()
	p := g.instances[id]
	g.mu.Unlock()
	if p == nil {
		return series.Figures{}, errs.New(errs.NotFound, "nothing is known yet of how instance %s did on this node", id)
	}
	return p.ring.Read(now, w), nil
}
