package preempt

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Quiet is the shortest time between two preemptions for one instance.
const Quiet = time.Minute

// Pace remembers the recent preemptions, so that they are not repeated at once. The zero
// value is ready to use.
type Pace struct {
	made map[fleet.InstanceID]time.Time
}

// Made records a preemption for an instance.
func (p *Pace) Made(id fleet.InstanceID, now time.Time) {
	if p.made == nil {
		p.made = map[fleet.InstanceID]time.Time{}
	}
	for other, at := range p.made { // drop old entries here, so that no timer is needed
		if now.Sub(at) >= Quiet {
			delete(p.made, other)
		}
	}
	p.made[id] = now
}

// Forget undoes Made after a preemption that did not happen.
func (p *Pace) Forget(id fleet.InstanceID) { delete(p.made, id) }

// Ready returns the time from which a preemption for the instance is allowed again. It is
// in the past when one is allowed now.
func (p *Pace) Ready(id fleet.InstanceID) time.Time {
	at, ok := p.made[id]
	if !ok {
		return time.Time{}
	}
	return at.Add(Quiet)
}
