// Package presence holds the players on a node's instances, as the instances report them. The
// node's report writes them to the store in parts. A file in each run's directory keeps them
// for the next agent.
package presence

import (
	"cmp"
	"slices"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
)

// Registry holds all players of a node. It is safe for concurrent use.
type Registry struct {
	mu    sync.Mutex
	parts [players.PresenceParts]map[entry]players.Presence
	// byInstance are the players of each instance that reports players.
	byInstance map[fleet.InstanceID]map[players.PlayerID]struct{}
	// changed are the parts that differ from the store.
	changed map[int]struct{}
}

type entry struct {
	player players.PlayerID
	by     fleet.InstanceID
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{byInstance: map[fleet.InstanceID]map[players.PlayerID]struct{}{}, changed: map[int]struct{}{}}
}

// Join adds a player or updates one. Since stays unchanged. It returns the stored presence.
// Exhausted if there are too many.
func (b *Registry) Join(p players.Presence) (players.Presence, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, at := p.Player.Part(), entry{p.Player, p.By}
	part := b.parts[n]
	old, there := part[at]
	switch {
	case there:
		p.Since = old.Since
	case len(part) >= players.MaxPresencePart:
		return p, errs.New(errs.Exhausted, "this node has more than %d players in the same part of its records (by UUID): no more are accepted", players.MaxPresencePart)
	}
	if part == nil {
		part = map[entry]players.Presence{}
		b.parts[n] = part
	}
	online := b.byInstance[p.By]
	if online == nil {
		online = map[players.PlayerID]struct{}{}
		b.byInstance[p.By] = online
	}
	part[at], online[p.Player], b.changed[n] = p, struct{}{}, struct{}{}
	return p, nil
}

// Leave removes a player of an instance.
func (b *Registry) Leave(by fleet.InstanceID, player players.PlayerID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(by, player)
}

func (b *Registry) leave(by fleet.InstanceID, player players.PlayerID) {
	n := player.Part()
	if _, there := b.parts[n][entry{player, by}]; !there {
		return
	}
	delete(b.parts[n], entry{player, by})
	delete(b.byInstance[by], player)
	if len(b.byInstance[by]) == 0 {
		delete(b.byInstance, by)
	}
	b.changed[n] = struct{}{}
}

// Drop removes all players of an instance.
func (b *Registry) Drop(by fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for player := range b.byInstance[by] {
		b.leave(by, player)
	}
}

// Count is the number of players of an instance.
func (b *Registry) Count(by fleet.InstanceID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.byInstance[by])
}

// PlayersOf are the players of an instance, in no order.
func (b *Registry) PlayersOf(by fleet.InstanceID) []players.Presence {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]players.Presence, 0, len(b.byInstance[by]))
	for player := range b.byInstance[by] {
		out = append(out, b.parts[player.Part()][entry{player, by}])
	}
	return out
}

// Changed reports whether a part differs from the store.
func (b *Registry) Changed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.changed) > 0
}

// TakeChanged returns the number of a changed part and its players in order, and marks it as
// unchanged. ok is false if no part has changed.
func (b *Registry) TakeChanged() (n int, online []players.Presence, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n = range b.changed {
		delete(b.changed, n)
		online = make([]players.Presence, 0, len(b.parts[n]))
		for _, p := range b.parts[n] {
			online = append(online, p)
		}
		slices.SortFunc(online, func(x, y players.Presence) int {
			return cmp.Or(cmp.Compare(x.Player, y.Player), cmp.Compare(x.By, y.By))
		})
		return n, online, true
	}
	return 0, nil, false
}

// MarkChanged marks a part as changed.
func (b *Registry) MarkChanged(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed[n] = struct{}{}
}
