package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// leanLittle decides between nodes that suit nearly as well. leanMuch keeps a
	// scheduler to its own nodes as long as something fits there: where many are lost,
	// others decide for the same ones, and who is slower loses everything.
	leanLittle, leanMuch = 0.125, 1.0
	// apartFor is how long schedulers keep apart after a transaction that lost much.
	apartFor = 2 * time.Second
	// crowd is how many nodes two schedulers must have met on at once: where there are
	// few nodes, each is everybody's.
	crowd = 8
)

// leaning is which nodes the model leans to, nil for none, and how much.
type leaning struct {
	to func(fleet.NodeID) bool
	by float64
}

// lean has nodes preferred whose names hash to a shard that is owned, as long as other
// schedulers own others: their nodes are best for all of them at the same moment, and
// who decides for a node second decides in vain.
func (s *state) lean(own *store.Ownership, by float64) {
	s.leaning = leaning{by: by}
	if own.Count() < fleet.ShardCount {
		s.leaning.to = func(n fleet.NodeID) bool {
			_, ours := own.Fence(fleet.GroupName(n))
			return ours
		}
	}
	s.model.Lean(s.leaning.to, by)
}

// keepApart has the scheduler keep to its own nodes for a while after a transaction
// that lost much.
func (c *Controller) keepApart(lost, of int, now time.Time) {
	if lost < crowd || lost*muchLost <= of {
		return
	}
	c.apartUntil = now.Add(apartFor)
	if c.state.leaning.by != leanMuch && c.own != nil {
		c.state.lean(c.own, leanMuch)
	}
}

// mingle ends that when nothing was lost for a while.
func (c *Controller) mingle(now time.Time) {
	if c.state.leaning.by == leanMuch && !now.Before(c.apartUntil) {
		c.state.lean(c.own, leanLittle)
	}
}
