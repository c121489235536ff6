package supervise

import (
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// The states that an instance may give itself and that mean something here, in the
// words of the API it has used.
const (
	saysReady   = "ONLINE"
	saysOffline = "OFFLINE"
	saysStopped = "STOPPED"
)

// Beat is what an instance says of itself; nil and empty where it does not.
type Beat struct {
	State               string
	Players, MaxPlayers *int
	TPS                 *float64
	// At is when it was said.
	At time.Time
	// Sequence numbers what a run says; 0 is no number.
	Sequence int64
	// Joined is a player who is there, and Left one who is not any more.
	Joined *fleet.Presence
	Left   fleet.PlayerID
	// Measured are the figures it has of itself; its At is the Beat's.
	Measured *Measured
}

// Recall takes what the agent before this one reported of the instance at a time, until
// the instance says something: a server with players is not to be taken for an empty one.
func (i *Instance) Recall(r fleet.InstanceReport, at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.live.Status
	said := i.live.Report
	said.Usage = fleet.Usage{} // which is measured, not said
	if s.State.Running() && said == (fleet.InstanceReport{}) && s.StartedAt.Before(at) {
		if i.live.Report.Usage != (fleet.Usage{}) {
			r.Usage = i.live.Report.Usage
		}
		i.live.Report = r
	}
}

// Heartbeat takes what the instance says of itself: what it does not say stays as it
// was. Conflict when it does not run, AlreadyExists when as much was said before, also
// to an agent before this one, Exhausted when it tells of too many players.
func (i *Instance) Heartbeat(b Beat) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.live.Status.State.Running() && !i.launching {
		return errs.New(errs.Conflict, "the instance %s: only a running one sends heartbeats", i.live.Status.State.Text())
	}
	if b.Sequence != 0 && b.Sequence <= i.sequence {
		return errs.New(errs.AlreadyExists, "number %d is not higher than %d, which was the last", b.Sequence, i.sequence)
	}
	if err := i.tellPlayers(b); err != nil { // before its number is used up: whoever gets no answer may say it again
		return err
	}
	if b.Sequence != 0 {
		i.sequence = b.Sequence
		i.keepSequence(b.Sequence)
	}
	i.live.Report = i.live.Report.With(fleet.InstanceSaid{Players: b.Players, MaxPlayers: b.MaxPlayers, TPS: b.TPS, At: b.At})
	if b.Measured != nil {
		i.measured = *b.Measured
		i.measured.At = b.At
	}
	if b.State != "" {
		i.live.Said = b.State
	}
	// What was said before this run began, or on the way out, is no sign of its life.
	if !b.At.Before(i.since.Truncate(time.Millisecond)) && b.State != saysOffline && b.State != saysStopped {
		i.pulse.Beat(b.State == saysReady)
	}
	return nil
}
