package driver

import (
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// The states that an instance may report about itself and that matter here.
const (
	saysReady   = "ONLINE"
	saysOffline = "OFFLINE"
	saysStopped = "STOPPED"
)

// Recall restores what the previous agent reported at a time, until the instance sends a
// heartbeat: a server with players must not look empty.
func (i *Instance) Recall(r reports.InstanceReport, at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.live.Status
	said := i.live.Report
	said.Usage = reports.Usage{} // measured by the agent
	if s.State.Running() && said == (reports.InstanceReport{}) && s.StartedAt.Before(at) {
		if i.live.Report.Usage != (reports.Usage{}) {
			r.Usage = i.live.Report.Usage
		}
		i.live.Report = r
	}
}

// Heartbeat applies a heartbeat, which has its time. Values that it does not contain stay unchanged. Conflict if
// the instance does not run, AlreadyExists for a sequence number that was received before,
// also by an earlier agent, Exhausted for too many players.
func (i *Instance) Heartbeat(b client.Heartbeat) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.live.Status.State.Running() && !i.launching {
		return errs.New(errs.Conflict, "the instance %s: only a running one sends heartbeats", i.live.Status.State.Text())
	}
	if b.Sequence != 0 && b.Sequence <= i.sequence {
		return errs.New(errs.AlreadyExists, "sequence number %d is not higher than the last one, %d", b.Sequence, i.sequence)
	}
	if err := i.updatePlayers(b); err != nil { // before the number is used: the instance may retry
		return err
	}
	if b.Sequence != 0 {
		i.sequence = b.Sequence
		i.keepSequence(b.Sequence)
	}
	i.live.Report = i.live.Report.With(reports.InstanceSaid{Players: b.Players, MaxPlayers: b.MaxPlayers, TPS: b.TPS, At: b.At})
	if b.Measured != nil {
		i.measured = *b.Measured
		i.measured.At = b.At
	}
	if b.State != "" {
		i.live.Said = b.State
	}
	// A heartbeat from before this run, or from its shutdown, is no sign of life.
	if !b.At.Before(i.since.Truncate(time.Millisecond)) && b.State != saysOffline && b.State != saysStopped {
		i.heartbeats.Beat(b.State == saysReady)
	}
	return nil
}
