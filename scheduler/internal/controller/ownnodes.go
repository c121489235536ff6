package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// onlyOwnFor is how long a scheduler keeps to its own nodes after a transaction with
	// heavy loss.
	onlyOwnFor = 2 * time.Second
	// heavyLoss is the least number of lost parts that counts as heavy loss.
	heavyLoss = 8
	// onlyOwnNodes is the smallest fleet in which schedulers keep to their own nodes. In a
	// smaller one a scheduler may have only few nodes and would fill them more than the
	// others.
	onlyOwnNodes = 512
)

// preference says which nodes the model prefers, nil for none, and whether it keeps to them.
type preference struct {
	to      func(fleet.NodeID) bool
	onlyOwn bool
}

// preferOwn prefers the nodes whose names hash to an owned shard, while other schedulers
// own other shards. Otherwise equal nodes would be best for all schedulers at the same
// moment, and only the first placement on each would succeed.
func (s *state) preferOwn(own *store.Ownership, onlyOwn bool) {
	s.preference = preference{onlyOwn: onlyOwn}
	if own.Count() < fleet.ShardCount {
		s.preference.to = func(n fleet.NodeID) bool {
			_, ours := own.Fence(fleet.GroupName(n))
			return ours
		}
	}
	s.model.Prefer(s.preference.to, onlyOwn)
}

// keepToOwn makes the scheduler keep to its own nodes for a while after heavy loss. Otherwise
// the slower scheduler loses everything: its own nodes stay emptier, so all others choose
// them. See place_four_replicas_per_s.
func (c *Controller) keepToOwn(lost, of, nodes int, now time.Time) {
	if lost < heavyLoss || lost*muchLost <= of || nodes < onlyOwnNodes {
		return
	}
	c.onlyOwnUntil = now.Add(onlyOwnFor)
	if !c.state.preference.onlyOwn && c.own != nil {
		c.state.preferOwn(c.own, true)
	}
}

// useAllNodes lets the scheduler use all nodes again after a while without heavy loss.
func (c *Controller) useAllNodes(now time.Time) {
	if c.state.preference.onlyOwn && !now.Before(c.onlyOwnUntil) {
		c.state.preferOwn(c.own, false)
	}
}
