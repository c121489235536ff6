package tenants

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Numbers assigns ids to the instances of a node that are not static. It is safe for concurrent use.
type Numbers struct {
	span Span
	// left returns the ids of the range that own files.
	left func() map[int]bool

	mu sync.Mutex
	of map[fleet.InstanceID]int
	// owner is the inverse of of.
	owner map[int]fleet.InstanceID
	// ended are ids whose instances were forgotten and that may still own files.
	ended map[int]bool
	// next is where the search for a free id begins: an id is used again as late as possible.
	next int
	// freed is closed when an instance is forgotten.
	freed chan struct{}
}

// New returns the ids of a node. held are those that its instances have; ids out of the range are
// ignored. left returns the ids that own files.
func New(s Span, held map[fleet.InstanceID]int, left func() map[int]bool) *Numbers {
	n := &Numbers{
		span: s, left: left, of: map[fleet.InstanceID]int{}, owner: map[int]fleet.InstanceID{}, ended: map[int]bool{}, freed: make(chan struct{}),
		next: s.firstDynamic() + rand.IntN(s.Last-s.firstDynamic()+1),
	}
	for id, uid := range held {
		if _, taken := n.owner[uid]; !taken && s.isDynamic(uid) {
			n.of[id], n.owner[uid] = uid, id
		}
	}
	maps.Copy(n.ended, left())
	return n
}

// Span returns the range.
func (n *Numbers) Span() Span { return n.span }

// Take returns the id of an instance, and assigns a free one at its first call. If all are in use, it calls waits
// once, and waits until an instance is forgotten or ctx ends.
func (n *Numbers) Take(ctx context.Context, id fleet.InstanceID, waits func()) (uid int, err error) {
	for {
		uid, freed := n.take(id)
		if uid != 0 {
			return uid, nil
		}
		if waits != nil {
			waits()
			waits = nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// take returns the id of an instance. If all are in use, it returns 0 and a channel that is closed when
// an instance is forgotten.
func (n *Numbers) take(id fleet.InstanceID) (uid int, freed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if uid, has := n.of[id]; has {
		return uid, nil
	}
	uid = n.free()
	if uid == 0 && len(n.ended) > 0 {
		n.ended = n.left()
		uid = n.free()
	}
	if uid == 0 {
		return 0, n.freed
	}
	n.of[id], n.owner[uid] = uid, id
	return uid, nil
}

// free returns an id that no instance has and that owns no files, or 0.
func (n *Numbers) free() int {
	first, count := n.span.firstDynamic(), n.span.Last-n.span.firstDynamic()+1
	for range count {
		uid := n.next
		n.next = first + (uid-first+1)%count
		if _, taken := n.owner[uid]; !taken && !n.ended[uid] {
			return uid
		}
	}
	return 0
}

// Release frees the id of a forgotten instance, whose directory is removed.
func (n *Numbers) Release(id fleet.InstanceID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	uid, has := n.of[id]
	if !has {
		return
	}
	delete(n.of, id)
	delete(n.owner, uid)
	n.ended[uid] = true
	close(n.freed)
	n.freed = make(chan struct{})
}
