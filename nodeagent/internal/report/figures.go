package report

import (
	"context"
	"math"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// figures are what the store has of a part of the instances' live figures.
type figures struct {
	// rev is the record's revision; 0 means that it does not exist.
	rev     int64
	written map[fleet.InstanceID]fleet.InstanceReport
}

// split sorts instances' figures into their parts.
func split(all map[fleet.InstanceID]fleet.InstanceReport) (out [fleet.ReportParts]map[fleet.InstanceID]fleet.InstanceReport) {
	for id, f := range all {
		n := id.Part()
		if out[n] == nil {
			out[n] = map[fleet.InstanceID]fleet.InstanceReport{}
		}
		out[n][id] = f
	}
	return out
}

// readFigures learns which parts are in the store, and recalls what the agent before this
// one reported. All parts count as changed.
func (r *Reporter) readFigures(ctx context.Context, recall bool) error {
	parts, _, err := store.List(ctx, r.cfg.Store, store.ReportPartsOn(r.cfg.Node))
	if err != nil {
		return errs.Wrap("report.readFigures", err)
	}
	r.figures = [fleet.ReportParts]figures{}
	for _, p := range parts {
		for id := range p.Instances {
			r.figures[id.Part()].rev = p.ModRev
			break // all are of one part
		}
		if recall {
			r.cfg.Recall(fleet.Report{At: p.At, Instances: p.Instances})
		}
	}
	return nil
}

// figuresChanged reports whether a part of the figures is worth a write.
func (r *Reporter) figuresChanged(now fleet.Report) bool {
	for n, part := range split(now.Instances) {
		if r.figures[n].differs(part, r.steps(now)) {
			return true
		}
	}
	return false
}

func (f *figures) differs(now map[fleet.InstanceID]fleet.InstanceReport, s Steps) bool {
	return len(now) == 0 && f.rev != 0 || FiguresDiffer(f.written, now, s)
}

// steps are the changes that are worth a write now.
func (r *Reporter) steps(now fleet.Report) Steps {
	return Steps{
		Heartbeat: r.heartbeatStep(),
		Usage:     r.cfg.Now().Sub(r.usageAt) >= UsageInterval(r.nodes, len(now.Instances)),
	}
}

const (
	// usageEvery is the least time between two writes that only tell what instances use.
	usageEvery = time.Minute
	// usageShare is the part of fleetBytes that such writes may take, as a divisor.
	usageShare = 4
	// figuresSize is about what an instance's figures take in a transaction, in bytes.
	figuresSize = 48
)

// UsageInterval is the time between two writes for what so many instances of one node use,
// in a fleet of so many nodes.
func UsageInterval(nodes, instances int) time.Duration {
	return max(usageEvery, time.Duration(nodes)*time.Duration(instances)*figuresSize*usageShare*time.Second/fleetBytes)
}

// addFigures adds the parts of the figures that changed to a transaction. The caller
// calls settle with the transaction's revision once it has succeeded.
func (r *Reporter) addFigures(t *store.Txn, now fleet.Report) (settle func(rev int64)) {
	parts, steps := split(now.Instances), r.steps(now)
	var taken []int
	for n, part := range parts {
		f := &r.figures[n]
		if !f.differs(part, steps) {
			continue
		}
		taken = append(taken, n)
		key := store.ReportPartKey(r.cfg.Node, n)
		switch {
		case len(part) > 0:
			t.Writes = append(t.Writes, store.Replace(key, fleet.ReportPart{At: now.At, Instances: part}, f.rev))
		case f.rev != 0:
			t.Writes = append(t.Writes, store.Remove(key, f.rev))
		}
	}
	return func(rev int64) {
		if steps.Usage {
			r.usageAt = r.cfg.Now()
		}
		for _, n := range taken {
			r.figures[n] = figures{}
			if len(parts[n]) > 0 {
				r.figures[n] = figures{rev: rev, written: parts[n]}
			}
		}
	}
}

// Steps say which changes of figures are worth a write.
type Steps struct {
	// Heartbeat is how much younger a heartbeat has to be.
	Heartbeat time.Duration
	// Usage is true when it is time to tell of changes of what instances use. Whether it is
	// known is told at once.
	Usage bool
}

// FiguresDiffer reports whether newer figures say something that older ones do not: other
// instances or players, ticks per second that moved by a step, a heartbeat that is younger
// by a step, or a use of the host that moved by a step.
func FiguresDiffer(old, now map[fleet.InstanceID]fleet.InstanceReport, s Steps) bool {
	if len(old) != len(now) {
		return true
	}
	for id, n := range now {
		o, ok := old[id]
		if !ok || o.PlayersKnown != n.PlayersKnown || o.Players != n.Players || o.MaxPlayers != n.MaxPlayers || moved(o.TPS, n.TPS, 20) ||
			n.HeartbeatAt.Sub(o.HeartbeatAt) >= s.Heartbeat || usageDiffers(o.Usage, n.Usage, s.Usage) {
			return true
		}
	}
	return false
}

// Smaller changes of an instance's use are not worth a write.
const (
	memoryStep = 8 << 20 // bytes
	cpuStep    = 2       // hundredths of a core
	diskStep   = 16 << 20
)

func usageDiffers(old, now fleet.Usage, due bool) bool {
	if (old.MemoryBytes > 0) != (now.MemoryBytes > 0) || old.CPUKnown != now.CPUKnown || old.DiskKnown != now.DiskKnown {
		return true
	}
	differs := func(old, now, least float64) bool { return math.Abs(now-old) >= max(least, step*old) }
	return due && (differs(float64(old.MemoryBytes), float64(now.MemoryBytes), memoryStep) ||
		differs(old.CPU, now.CPU, cpuStep) || differs(float64(old.DiskBytes), float64(now.DiskBytes), diskStep))
}
