package scaling

import (
	"fmt"

	"github.com/orreryhq/orrery/libs/fleet"
)

// DegradedTPS is the number of ticks per second below which an instance with players is degraded. A
// healthy Minecraft server has 20.
const DegradedTPS = 18

// Load is how busy the instances of a group are together.
type Load struct {
	// Players are on the group's instances, also on those that take no new players.
	Players int
	// Instances is the number of instances that take players or will do so once they are ONLINE.
	// Slots is how many players they can have together.
	Instances, Slots int
	// Degraded is how many of them have players and report fewer than DegradedTPS.
	Degraded int
	// Unlimited is true if the number of slots of one of them is unknown. Only degradation counts then.
	Unlimited bool
}

// Instance is what Load counts of one instance. The zero value of a field means unknown or none.
type Instance struct {
	Players, MaxPlayers int
	TPS                 float64
	// Closed is true if the instance takes no new players.
	Closed bool
}

// With returns the load with n more of an instance, fewer if n is negative. Its slots are its
// MaxPlayers, or else usual.
func (l Load) With(n int, i Instance, usual int) Load {
	l.Players += n * i.Players
	if i.Closed {
		return l
	}
	slots := i.MaxPlayers
	if slots <= 0 {
		slots = usual
	}
	l.Instances += n
	l.Slots += n * slots
	l.Unlimited = l.Unlimited || slots <= 0
	if i.Players > 0 && i.TPS > 0 && i.TPS < DegradedTPS {
		l.Degraded += n
	}
	return l
}

// Exceeds returns why a load needs more instances under the rules of a group, as a reason and a
// sentence. The reason is empty if it needs none.
func (l Load) Exceeds(s *fleet.Scaling) (fleet.Reason, string) {
	why, free := l.exceeds(s), l.Slots-l.Players
	switch {
	case why == fleet.ReasonFullness:
		return why, fmt.Sprintf("%d players on %d slots reach the scaleUpThreshold of %v", l.Players, l.Slots, s.UpThreshold)
	case why == fleet.ReasonBuffer && free < s.BufferSlots:
		return why, fmt.Sprintf("%d of %d slots are free, and scaleBufferSlots is %d", free, l.Slots, s.BufferSlots)
	case why == fleet.ReasonBuffer:
		return why, fmt.Sprintf("%d of %d slots are free, and scaleBufferPercent is %d", free, l.Slots, s.BufferPercent)
	case why == fleet.ReasonDegraded:
		return why, fmt.Sprintf("all %d instances have players and report fewer than %d ticks per second", l.Instances, DegradedTPS)
	}
	return "", ""
}

func (l Load) exceeds(s *fleet.Scaling) fleet.Reason {
	free := l.Slots - l.Players
	switch {
	case l.Unlimited:
	case l.Players > 0 && float64(l.Players) >= s.UpThreshold*float64(l.Slots):
		return fleet.ReasonFullness
	case s.BufferSlots > 0 && free < s.BufferSlots, l.Slots > 0 && s.BufferPercent > 0 && free*100 < l.Slots*s.BufferPercent:
		return fleet.ReasonBuffer
	}
	if l.Instances > 0 && l.Degraded == l.Instances {
		return fleet.ReasonDegraded
	}
	return ""
}

// Needs is Exceeds for the decision to start instances. Players on instances that take no new ones
// start nothing alone: their instances were closed for a reason, which provides for them.
func (l Load) Needs(s *fleet.Scaling) (fleet.Reason, string) {
	alone := l
	alone.Players = 0
	if l.Instances == 0 && alone.exceeds(s) == "" {
		return "", ""
	}
	return l.Exceeds(s)
}

// Missing returns how many more instances with the usual number of slots bring a load below the
// limits of Exceeds, at most most.
func (l Load) Missing(s *fleet.Scaling, usual, most int) int {
	for n := range most {
		if l.With(n, Instance{}, usual).exceeds(s) == "" {
			return n
		}
	}
	return max(0, most)
}
