package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// apartFor is how long schedulers keep apart after a transaction that lost much.
	apartFor = 2 * time.Second
	// crowd is how many nodes two schedulers must have met on at once to keep apart.
	crowd = 8
	// apartNodes is how many nodes there must be for that. In a smaller fleet the own nodes
	// of a scheduler may be a few only, and to keep to them fills them beyond the others.
	apartNodes = 512
)

// preferred is which nodes the model prefers, nil for none, and whether it keeps to them.
type preferred struct {
	to    func(fleet.NodeID) bool
	apart bool
}

// preferOwn prefers the nodes whose names hash to an owned shard, as long as other schedulers
// own others. Equal nodes are best for all schedulers at the same moment, and only the
// first placement on each is made.
func (s *state) preferOwn(own *store.Ownership, apart bool) {
	s.preferred = preferred{apart: apart}
	if own.Count() < fleet.ShardCount {
		s.preferred.to = func(n fleet.NodeID) bool {
			_, ours := own.Fence(fleet.GroupName(n))
			return ours
		}
	}
	s.model.Prefer(s.preferred.to, apart)
}

// keepApart keeps the scheduler to its own nodes for a while after a transaction that
// lost much. Otherwise whichever scheduler is slower has the emptier nodes: all others
// decide for those, and it loses everything.
func (c *Controller) keepApart(lost, of, nodes int, now time.Time) {
	if lost < crowd || lost*muchLost <= of || nodes < apartNodes {
		return
	}
	c.apartUntil = now.Add(apartFor)
	if !c.state.preferred.apart && c.own != nil {
		c.state.preferOwn(c.own, true)
	}
}

// endApart lets the scheduler choose among all nodes again when nothing was lost for a while.
func (c *Controller) endApart(now time.Time) {
	if c.state.preferred.apart && !now.Before(c.apartUntil) {
		c.state.preferOwn(c.own, false)
	}
}
