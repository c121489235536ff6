// Package presence tells who plays where: what the view has of players, and beside it what
// this gateway has just handed over to their agents and the view does not have yet. So whoever
// told of a player finds it at once at the same gateway, and in a moment at all others.
package presence

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	// maxWords bounds what the view does not have yet; what comes past it is not shown before.
	maxWords = 10_000
	// patience is how long an agent takes to publish, beside the time between two reports.
	patience = 3 * time.Second
	// reportRate is how many nodes report in a second, at most; reportLatest is the longest
	// pause of a node whose reports are large.
	reportRate   = 90
	reportLatest = 30 * time.Second
)

// Table joins both. It is safe for concurrent use.
type Table struct {
	now func() time.Time

	mu sync.Mutex
	// words are what the view does not have yet, by player and who told.
	words map[fleet.PlayerID]map[fleet.InstanceID]word
	count int
	// swept is when those whose time is over were dropped last.
	swept time.Time
}

// word is what was said of a player.
type word struct {
	// there is nil when the player left.
	there *fleet.Presence
	// said is its number, until when it is remembered at most.
	said  int64
	until time.Time
}

// New makes a table that has heard nothing.
func New(now func() time.Time) *Table {
	return &Table{now: now, words: map[fleet.PlayerID]map[fleet.InstanceID]word{}}
}

// Took notes what an agent has taken of an instance.
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
		t.forget(func(_ fleet.PlayerID, _ fleet.InstanceID, w word) bool { return now.After(w.until) })
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

// forget drops words. t.mu is held.
func (t *Table) forget(which func(fleet.PlayerID, fleet.InstanceID, word) bool) {
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

// Hear drops what the view has now. Subscribe it to the view.
func (t *Table) Hear(b view.Batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == 0 {
		return
	}
	for _, c := range b.Changes {
		part, ok := c.After.(*fleet.PresencePart)
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
		t.forget(func(_ fleet.PlayerID, _ fleet.InstanceID, w word) bool { return now.After(w.until) })
	}
}

// Of is where a player is; ok is false when the player is not there.
func (t *Table) Of(s *view.Snapshot, id fleet.PlayerID) (fleet.Player, bool) {
	t.mu.Lock()
	words := maps.Clone(t.words[id])
	t.mu.Unlock()
	return t.merge(s, s.PresencesOf(id), words)
}

// merge is where a player is after all that is told and was said since.
func (t *Table) merge(s *view.Snapshot, told []fleet.Presence, words map[fleet.InstanceID]word) (fleet.Player, bool) {
	now := t.now()
	for by, w := range words {
		at := slices.IndexFunc(told, func(p fleet.Presence) bool { return p.By == by })
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
	return fleet.MergePresence(told, s.Tells)
}

// All are all players who are there, in order of their ids.
func (t *Table) All(s *view.Snapshot) []fleet.Player {
	t.mu.Lock()
	words := make(map[fleet.PlayerID]map[fleet.InstanceID]word, len(t.words))
	for id, w := range t.words {
		words[id] = maps.Clone(w)
	}
	t.mu.Unlock()
	var out []fleet.Player
	var told []fleet.Presence
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
	slices.SortFunc(out, func(a, b fleet.Player) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
