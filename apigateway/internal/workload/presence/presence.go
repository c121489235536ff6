// Package presence knows which player is where: from the view, and from reports that this gateway has
// just forwarded to agents and that the view does not have yet. So a server's report is visible at
// once on the same gateway, and shortly afterwards on the others.
package presence

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	// maxWords limits the reports that the view does not have yet. Further ones become visible with the view.
	maxWords = 10_000
	// patience is how long an agent takes to publish a report, in addition to its report interval.
	patience = 3 * time.Second
	// reportRate is the maximum number of node reports per second. reportLatest is the longest interval of a
	// node with large reports.
	reportRate   = 90
	reportLatest = 30 * time.Second
)

// Table combines both sources. It is safe for concurrent use.
type Table struct {
	now func() time.Time

	mu sync.Mutex
	// words has the reports that the view does not have yet, by player and reporting instance.
	words map[players.PlayerID]map[fleet.InstanceID]word
	count int
	// swept is when expired reports were last dropped.
	swept time.Time
}

// word is a report about a player.
type word struct {
	// there is nil if the player left.
	there *players.Presence
	// said is the report's sequence number, until is its expiry.
	said  int64
	until time.Time
}

// New returns an empty Table.
func New(now func() time.Time) *Table {
	return &Table{now: now, words: map[players.PlayerID]map[fleet.InstanceID]word{}}
}

// Took records a report that an agent has accepted from an instance.
func (t *Table) Took(s *view.Snapshot, by fleet.InstanceID, h client.Heartbeat) {
	now := t.now().UTC()
	w := word{said: h.Sequence, until: now.Add(patience + max(reportLatest, 2*time.Duration(s.NodeSessions.Len())*time.Second/reportRate))}
	id := h.Left
	if h.Joined != nil {
		p := *h.Joined
		p.By, p.Since, p.At, p.Said = by, now, now, h.Sequence
		for _, old := range s.PresencesOf(p.Player) {
			if old.By == by {
				p.Since = old.Since
			}
		}
		w.there, id = &p, p.Player
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count >= maxWords {
		t.forget(func(_ players.PlayerID, _ fleet.InstanceID, w word) bool { return now.After(w.until) })
	}
	old, known := t.words[id][by]
	if t.count >= maxWords && !known || known && old.said > w.said {
		return
	}
	if t.words[id] == nil {
		t.words[id] = map[fleet.InstanceID]word{}
	}
	t.words[id][by] = w
	if !known {
		t.count++
	}
}

// forget drops reports. The caller holds t.mu.
func (t *Table) forget(which func(players.PlayerID, fleet.InstanceID, word) bool) {
	for id, words := range t.words {
		for by, w := range words {
			if which(id, by, w) {
				delete(words, by)
				t.count--
			}
		}
		if len(words) == 0 {
			delete(t.words, id)
		}
	}
}

// OnBatch drops reports that the view has now. Subscribe it to the view.
func (t *Table) OnBatch(b view.Batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == 0 {
		return
	}
	for _, c := range b.Changes {
		part, ok := c.After.(*players.PresencePart)
		if !ok {
			continue
		}
		for _, p := range part.Players {
			if w, ok := t.words[p.Player][p.By]; ok && w.said <= p.Said {
				delete(t.words[p.Player], p.By)
				t.count--
			}
		}
	}
	if now := t.now(); now.Sub(t.swept) >= time.Second {
		t.swept = now
		t.forget(func(_ players.PlayerID, _ fleet.InstanceID, w word) bool { return now.After(w.until) })
	}
}

// Of returns where a player is. ok is false if the player is not connected.
func (t *Table) Of(s *view.Snapshot, id players.PlayerID) (players.Player, bool) {
	t.mu.Lock()
	words := maps.Clone(t.words[id])
	t.mu.Unlock()
	return t.merge(s, s.PresencesOf(id), words)
}

// merge combines a player's entries of the view with newer reports.
func (t *Table) merge(s *view.Snapshot, told []players.Presence, words map[fleet.InstanceID]word) (players.Player, bool) {
	now := t.now()
	for by, w := range words {
		at := slices.IndexFunc(told, func(p players.Presence) bool { return p.By == by })
		switch {
		case now.After(w.until), at >= 0 && told[at].Said >= w.said:
		case at >= 0 && w.there == nil:
			told = slices.Delete(slices.Clone(told), at, at+1)
		case at >= 0:
			told = slices.Clone(told)
			told[at] = *w.there
		case w.there != nil:
			told = append(slices.Clone(told), *w.there)
		}
	}
	return players.MergePresence(told, s.Tells)
}

// All returns all connected players, sorted by ID.
func (t *Table) All(s *view.Snapshot) []players.Player {
	t.mu.Lock()
	words := make(map[players.PlayerID]map[fleet.InstanceID]word, len(t.words))
	for id, w := range t.words {
		words[id] = maps.Clone(w)
	}
	t.mu.Unlock()
	var out []players.Player
	var told []players.Presence
	take := func() {
		if len(told) == 0 {
			return
		}
		id := told[0].Player
		if p, ok := t.merge(s, told, words[id]); ok {
			out = append(out, p)
		}
		delete(words, id)
		told = told[:0]
	}
	for p := range s.Presences() {
		if len(told) > 0 && told[0].Player != p.Player {
			take()
		}
		told = append(told, *p)
	}
	take()
	if len(words) == 0 {
		return out
	}
	for _, w := range words {
		if p, ok := t.merge(s, nil, w); ok {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b players.Player) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
