package report

import (
	"context"
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
		if r.figures[n].differs(part, r.heartbeatStep()) {
			return true
		}
	}
	return false
}

func (f *figures) differs(now map[fleet.InstanceID]fleet.InstanceReport, step time.Duration) bool {
	return len(now) == 0 && f.rev != 0 || FiguresDiffer(f.written, now, step)
}

// addFigures adds the parts of the figures that changed to a transaction. The caller
// calls settle with the transaction's revision once it has succeeded.
func (r *Reporter) addFigures(t *store.Txn, now fleet.Report) (settle func(rev int64)) {
	parts := split(now.Instances)
	var taken []int
	for n, part := range parts {
		f := &r.figures[n]
		if !f.differs(part, r.heartbeatStep()) {
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
		for _, n := range taken {
			r.figures[n] = figures{}
			if len(parts[n]) > 0 {
				r.figures[n] = figures{rev: rev, written: parts[n]}
			}
		}
	}
}

// FiguresDiffer reports whether newer figures say something that older ones do not: other
// instances or players, ticks per second that moved by a step, or a heartbeat that is
// younger by a step.
func FiguresDiffer(old, now map[fleet.InstanceID]fleet.InstanceReport, heartbeatStep time.Duration) bool {
	if len(old) != len(now) {
		return true
	}
	for id, n := range now {
		o, ok := old[id]
		if !ok || o.PlayersKnown != n.PlayersKnown || o.Players != n.Players || o.MaxPlayers != n.MaxPlayers || moved(o.TPS, n.TPS, 20) ||
			n.HeartbeatAt.Sub(o.HeartbeatAt) >= heartbeatStep {
			return true
		}
	}
	return false
}
