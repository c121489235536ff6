package report

import (
	"context"
	"math"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// figures are the stored live figures of a part of the instances.
type figures struct {
	// rev is the record's revision; 0 if it does not exist.
	rev     int64
	written map[fleet.InstanceID]reports.InstanceReport
}

// split groups instances' figures by part.
func split(all map[fleet.InstanceID]reports.InstanceReport) (out [fleet.ReportParts]map[fleet.InstanceID]reports.InstanceReport) {
	for id, f := range all {
		n := id.Part()
		if out[n] == nil {
			out[n] = map[fleet.InstanceID]reports.InstanceReport{}
		}
		out[n][id] = f
	}
	return out
}

// readFigures reads the revisions of the stored parts. With recall it also restores the figures
// of the previous agent. All parts then count as changed.
func (r *Reporter) readFigures(ctx context.Context, recall bool) error {
	parts, _, err := store.List(ctx, r.cfg.Store, keys.ReportPartsOn(r.cfg.Node))
	if err != nil {
		return errs.Wrap("report.readFigures", err)
	}
	r.figures = [fleet.ReportParts]figures{}
	for _, p := range parts {
		for id := range p.Instances {
			r.figures[id.Part()].rev = p.ModRev
			break // all instances belong to one part
		}
		if recall {
			r.cfg.Recall(reports.Report{At: p.At, Instances: p.Instances})
		}
	}
	return nil
}

// figuresChanged reports whether a part of the figures has to be written.
func (r *Reporter) figuresChanged(now reports.Report) bool {
	for n, part := range split(now.Instances) {
		if r.figures[n].differs(part, r.thresholds(now)) {
			return true
		}
	}
	return false
}

func (f *figures) differs(now map[fleet.InstanceID]reports.InstanceReport, s Thresholds) bool {
	return len(now) == 0 && f.rev != 0 || FiguresDiffer(f.written, now, s)
}

// thresholds are the changes that are worth a write now.
func (r *Reporter) thresholds(now reports.Report) Thresholds {
	return Thresholds{
		Heartbeat: r.heartbeatStep(),
		Usage:     r.cfg.Now().Sub(r.usageAt) >= UsageInterval(r.nodes, len(now.Instances)),
	}
}

const (
	// minUsageInterval is the shortest time between two writes that only change resource usage.
	minUsageInterval = time.Minute
	// usageShare is the share of fleetBytes for such writes, as a divisor.
	usageShare = 4
	// figuresSize is the approximate size of an instance's figures in a transaction, in bytes.
	figuresSize = 48
)

// UsageInterval is the time between two writes of resource usage, for the number of instances
// on the node and of nodes in the fleet.
func UsageInterval(nodes, instances int) time.Duration {
	return max(minUsageInterval, time.Duration(nodes)*time.Duration(instances)*figuresSize*usageShare*time.Second/fleetBytes)
}

// addFigures adds the changed parts of the figures to a transaction. The caller calls settle
// with the revision of the successful transaction.
func (r *Reporter) addFigures(t *store.Txn, now reports.Report) (settle func(rev int64)) {
	parts, steps := split(now.Instances), r.thresholds(now)
	var taken []int
	for n, part := range parts {
		f := &r.figures[n]
		if !f.differs(part, steps) {
			continue
		}
		taken = append(taken, n)
		key := keys.ReportPart(r.cfg.Node, n)
		switch {
		case len(part) > 0:
			t.Writes = append(t.Writes, store.Replace(key, reports.ReportPart{At: now.At, Instances: part}, f.rev))
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

// Thresholds define which changes of figures are worth a write.
type Thresholds struct {
	// Heartbeat is how much younger a heartbeat has to be.
	Heartbeat time.Duration
	// Usage is true if changes of resource usage are due. Whether the usage is known is
	// always written at once.
	Usage bool
}

// FiguresDiffer reports whether newer figures are worth a write: other instances or players, or
// a step in ticks per second, heartbeat age or resource usage.
func FiguresDiffer(old, now map[fleet.InstanceID]reports.InstanceReport, s Thresholds) bool {
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

// Smaller changes of resource usage are not worth a write.
const (
	memoryStep = 8 << 20 // bytes
	cpuStep    = 2       // hundredths of a core
	diskStep   = 16 << 20
)

func usageDiffers(old, now reports.Usage, due bool) bool {
	if (old.MemoryBytes > 0) != (now.MemoryBytes > 0) || old.CPUKnown != now.CPUKnown || old.DiskKnown != now.DiskKnown {
		return true
	}
	differs := func(old, now, least float64) bool { return math.Abs(now-old) >= max(least, usageStep*old) }
	return due && (differs(float64(old.MemoryBytes), float64(now.MemoryBytes), memoryStep) ||
		differs(old.CPU, now.CPU, cpuStep) || differs(float64(old.DiskBytes), float64(now.DiskBytes), diskStep))
}
