package store

import (
	"github.com/orreryhq/orrery/libs/fleet"
)

// Ownership is the set of shards a replica owns, with their fences. It is immutable; when the
// shards change, the replica gets a new one. Nil owns nothing.
type Ownership struct {
	fences [fleet.ShardCount]Fence
	done   <-chan struct{}
}

// Fence returns the fence of a group's shard. ok is false if the shard is not owned or the session
// is over.
func (o *Ownership) Fence(g fleet.GroupName) (Fence, bool) {
	if o == nil || closed(o.done) {
		return Fence{}, false
	}
	f := o.fences[fleet.ShardOf(g)]
	return f, f.createRev != 0
}

// Any returns the fence of any owned shard, for things that belong to no group. ok is false if
// none is owned or the session is over.
func (o *Ownership) Any() (f Fence, ok bool) {
	if o == nil || closed(o.done) {
		return Fence{}, false
	}
	for _, f := range o.fences {
		if f.createRev != 0 {
			return f, true
		}
	}
	return Fence{}, false
}

// Epoch returns the highest fencing token of the owned shards, 0 without shards. Decisions
// require a view at or after this revision.
func (o *Ownership) Epoch() int64 {
	if o == nil {
		return 0
	}
	var m int64
	for _, f := range o.fences {
		m = max(m, f.createRev)
	}
	return m
}

// Count returns the number of owned shards.
func (o *Ownership) Count() int {
	n := 0
	if o != nil {
		for _, f := range o.fences {
			if f.createRev != 0 {
				n++
			}
		}
	}
	return n
}

// since returns the shards that o has and before does not, and vice versa. A shard that was lost
// and claimed again is in both.
func (o *Ownership) since(before *Ownership) (gained, lost []int) {
	var none Ownership
	if before == nil {
		before = &none
	}
	if o == nil {
		o = &none
	}
	for n, f := range o.fences {
		was := before.fences[n].createRev
		if f.createRev == was {
			continue
		}
		if f.createRev != 0 {
			gained = append(gained, n)
		}
		if was != 0 {
			lost = append(lost, n)
		}
	}
	return gained, lost
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
