package preempt

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Quiet is the least time between two preemptions for one instance.
const Quiet = time.Minute

// Pace remembers for whom room was made, so that it is not made again at once. The
// zero value remembers nobody.
type Pace struct {
	made map[fleet.InstanceID]time.Time
}

// Made notes that room was asked for.
func (p *Pace) Made(id fleet.InstanceID, now time.Time) {
	if p.made == nil {
		p.made = map[fleet.InstanceID]time.Time{}
	}
	for other, at := range p.made { // forgetting needs no clock of its own
		if now.Sub(at) >= Quiet {
			delete(p.made, other)
		}
	}
	p.made[id] = now
}

// Forget takes Made back: nothing came of it.
func (p *Pace) Forget(id fleet.InstanceID) { delete(p.made, id) }

// Ready is when room may be asked for again; a time that has come when it may now.
func (p *Pace) Ready(id fleet.InstanceID) time.Time {
	at, ok := p.made[id]
	if !ok {
		return time.Time{}
	}
	return at.Add(Quiet)
}
