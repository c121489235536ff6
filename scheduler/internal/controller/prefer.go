package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// apartFor is how long a scheduler keeps to its own nodes after a transaction with
	// heavy loss.
	apartFor = 2 * time.Second
	// crowd is the least number of lost parts that counts as heavy loss.
	crowd = 8
	// apartNodes is the smallest fleet in which schedulers keep to their own nodes. In a
	// smaller one a scheduler may have only few nodes and would fill them more than the
	// others.
	apartNodes = 512
)

// preferred says which nodes the model prefers, nil for none, and whether it keeps to them.
type preferred struct {
	to    func(fleet.NodeID) bool
	apart bool
}

// preferOwn prefers the nodes whose names hash to an owned shard, while other schedulers
// own other shards. Otherwise equal nodes would be best for all schedulers at the same
// moment, and only the first placement on each would succeed.
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

// keepApart makes the scheduler keep to its own nodes for a while after heavy loss.
// Otherwise the slower scheduler loses everything: its own nodes stay emptier, so all
// others choose them.
func (c *Controller) keepApart(lost, of, nodes int, now time.Time) {
	if lost < crowd || lost*muchLost <= of || nodes < apartNodes {
		return
	}
	c.apartUntil = now.Add(apartFor)
	if !c.state.preferred.apart && c.own != nil {
		c.state.preferOwn(c.own, true)
	}
}

// endApart lets the scheduler use all nodes again after a while without heavy loss.
func (c *Controller) endApart(now time.Time) {
	if c.state.preferred.apart && !now.Before(c.apartUntil) {
		c.state.preferOwn(c.own, false)
	}
}
