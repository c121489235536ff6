// Package presence holds who plays on a node's instances, and who is connected through
// them, as these tell it. The node's report takes it to the store, part by part; a file
// beside each run takes it to the next agent.
package presence

import (
	"cmp"
	"slices"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Board holds all players of a node. It is safe for concurrent use.
type Board struct {
	mu    sync.Mutex
	parts [fleet.PresenceParts]map[entry]fleet.Presence
	// told are the players of each instance that tells of any.
	told map[fleet.InstanceID]map[fleet.PlayerID]struct{}
	// changed are the parts that are not in the store as they are.
	changed map[int]struct{}
}

type entry struct {
	player fleet.PlayerID
	by     fleet.InstanceID
}

// NewBoard makes an empty board.
func NewBoard() *Board {
	return &Board{told: map[fleet.InstanceID]map[fleet.PlayerID]struct{}{}, changed: map[int]struct{}{}}
}

// Join takes a player in, or what is told of one who is there already: Since stays as it
// was. It returns what stands then. Exhausted when there are too many.
func (b *Board) Join(p fleet.Presence) (fleet.Presence, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, at := p.Player.Part(), entry{p.Player, p.By}
	part := b.parts[n]
	old, there := part[at]
	switch {
	case there:
		p.Since = old.Since
	case len(part) >= fleet.MaxPresencePart:
		return p, errs.New(errs.Exhausted, "more than %d players whose UUIDs fall together are on this node: no more are taken", fleet.MaxPresencePart)
	}
	if part == nil {
		part = map[entry]fleet.Presence{}
		b.parts[n] = part
	}
	players := b.told[p.By]
	if players == nil {
		players = map[fleet.PlayerID]struct{}{}
		b.told[p.By] = players
	}
	part[at], players[p.Player], b.changed[n] = p, struct{}{}, struct{}{}
	return p, nil
}

// Leave takes a player away that an instance told of.
func (b *Board) Leave(by fleet.InstanceID, player fleet.PlayerID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(by, player)
}

func (b *Board) leave(by fleet.InstanceID, player fleet.PlayerID) {
	n := player.Part()
	if _, there := b.parts[n][entry{player, by}]; !there {
		return
	}
	delete(b.parts[n], entry{player, by})
	delete(b.told[by], player)
	if len(b.told[by]) == 0 {
		delete(b.told, by)
	}
	b.changed[n] = struct{}{}
}

// Drop takes all players away that an instance told of.
func (b *Board) Drop(by fleet.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for player := range b.told[by] {
		b.leave(by, player)
	}
}

// Count is how many players an instance tells of.
func (b *Board) Count(by fleet.InstanceID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.told[by])
}

// ToldBy are the players that an instance tells of, in no order.
func (b *Board) ToldBy(by fleet.InstanceID) []fleet.Presence {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]fleet.Presence, 0, len(b.told[by]))
	for player := range b.told[by] {
		out = append(out, b.parts[player.Part()][entry{player, by}])
	}
	return out
}

// Changed reports whether a part is not in the store as it is.
func (b *Board) Changed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.changed) > 0
}

// Take takes the number of a part that changed, and its players in order; ok is false when
// none did.
func (b *Board) Take() (n int, players []fleet.Presence, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n = range b.changed {
		delete(b.changed, n)
		players = make([]fleet.Presence, 0, len(b.parts[n]))
		for _, p := range b.parts[n] {
			players = append(players, p)
		}
		slices.SortFunc(players, func(x, y fleet.Presence) int {
			return cmp.Or(cmp.Compare(x.Player, y.Player), cmp.Compare(x.By, y.By))
		})
		return n, players, true
	}
	return 0, nil, false
}

// Again counts a part as changed.
func (b *Board) Again(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed[n] = struct{}{}
}
