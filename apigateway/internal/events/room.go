package events

import (
	"sync"

	"github.com/orreryhq/orrery/libs/fleet"
)

// maxOfOne bounds the streams of one instance: it needs one, and for a moment another.
const maxOfOne = 4

// room counts the streams that are open. Instances never take the last quarter of it, which
// is for people.
type room struct {
	size int

	mu        sync.Mutex
	open      int
	instances int
	of        map[fleet.InstanceID]int
}

func newRoom(size int) *room { return &room{size: size, of: map[fleet.InstanceID]int{}} }

// enter takes a place, of an instance unless that is "", until leave is called; ok is false
// when there is none.
func (r *room) enter(i fleet.InstanceID) (leave func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open >= r.size || i != "" && (r.of[i] >= maxOfOne || r.instances >= r.size-r.size/4) {
		return nil, false
	}
	r.open++
	if i != "" {
		r.instances++
		r.of[i]++
	}
	return func() { r.leave(i) }, true
}

func (r *room) leave(i fleet.InstanceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
	if i == "" {
		return
	}
	r.instances--
	if r.of[i]--; r.of[i] == 0 {
		delete(r.of, i)
	}
}

// taken is how many places are taken.
func (r *room) taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}
