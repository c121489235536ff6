package reconcile

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestScheduleAgainstAModel applies the same random steps to a schedule and a simple model. It compares
// which keys are ready in which order, and what is due when.
func TestScheduleAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t, s: newSchedule[int](), now: time.Unix(0, 0), due: map[int]time.Time{}, again: map[int]bool{}, working: map[int]*entry[int]{}}
		key := rapid.IntRange(0, 6)
		t.Repeat(map[string]func(*rapid.T){
			"add":   func(t *rapid.T) { m.add(key.Draw(t, "key")) },
			"addAt": func(t *rapid.T) { m.addAt(key.Draw(t, "key"), rapid.IntRange(0, 20).Draw(t, "in")) },
			"pass":  func(t *rapid.T) { m.pass(rapid.IntRange(0, 10).Draw(t, "for")) },
			"take":  func(*rapid.T) { m.take() },
			"done":  func(t *rapid.T) { m.done(key.Draw(t, "key")) },
			"":      func(*rapid.T) { m.check() },
		})
	})
}

type model struct {
	t       *rapid.T
	s       *schedule[int]
	now     time.Time
	ready   []int
	due     map[int]time.Time
	again   map[int]bool
	working map[int]*entry[int]
}

func (m *model) isReady(key int) bool {
	for _, k := range m.ready {
		if k == key {
			return true
		}
	}
	return false
}

func (m *model) wake(key int) bool {
	if m.working[key] != nil {
		m.again[key] = true
		return false
	}
	if m.isReady(key) {
		return false
	}
	m.ready = append(m.ready, key)
	return true
}

func (m *model) add(key int) {
	if got, want := m.s.add(key, m.now), m.wake(key); got != want {
		m.t.Fatalf("add(%d) = %v, want %v", key, got, want)
	}
}

func (m *model) addAt(key, in int) {
	due := m.now.Add(time.Duration(in) * time.Second)
	if old, waits := m.due[key]; !waits || due.Before(old) {
		m.due[key] = due
	}
	m.s.addAt(key, due)
}

// pass advances time by single seconds, so that the order in which keys become ready is known.
func (m *model) pass(seconds int) {
	for range seconds {
		m.now = m.now.Add(time.Second)
		want := 0
		for key, due := range m.due {
			if !due.After(m.now) {
				delete(m.due, key)
				if m.wake(key) {
					want++
				}
			}
		}
		if got := m.s.expire(m.now); got != want {
			m.t.Fatalf("expire woke %d, want %d", got, want)
		}
		m.sameMoment(want)
	}
}

// sameMoment adopts the schedule's order of keys that became ready at the same time.
func (m *model) sameMoment(n int) {
	for i := range n {
		at := len(m.ready) - n + i
		got := m.s.ready[at].key
		if !m.isReady(got) {
			m.t.Fatalf("%d is ready, want one of %v", got, m.ready)
		}
		for j := at; j < len(m.ready); j++ {
			if m.ready[j] == got {
				m.ready[at], m.ready[j] = m.ready[j], m.ready[at]
			}
		}
	}
}

func (m *model) take() {
	e := m.s.take()
	if len(m.ready) == 0 {
		if e != nil {
			m.t.Fatalf("took %d, want nothing", e.key)
		}
		return
	}
	if e == nil || e.key != m.ready[0] || m.working[e.key] != nil {
		m.t.Fatalf("took %+v, want %d", e, m.ready[0])
	}
	m.ready = m.ready[1:]
	m.working[e.key] = e
}

func (m *model) done(key int) {
	e := m.working[key]
	if e == nil {
		return
	}
	delete(m.working, key)
	want := m.again[key]
	delete(m.again, key)
	if want {
		m.wake(key)
	}
	if got := m.s.done(e, m.now); got != want {
		m.t.Fatalf("done(%d) = %v, want %v", key, got, want)
	}
}

func (m *model) check() {
	if len(m.s.ready) != len(m.ready) || len(m.s.waiting) != len(m.due) || m.s.working != len(m.working) {
		m.t.Fatalf("%d ready, %d waiting, %d working; want %v, %v, %v", len(m.s.ready), len(m.s.waiting), m.s.working, m.ready, m.due, m.working)
	}
	for i, key := range m.ready {
		if got := m.s.ready[i]; got.key != key {
			m.t.Fatalf("place %d holds %d, want %d", i, got.key, key)
		}
	}
	for i, e := range m.s.waiting {
		if e.slot != i || !e.due.Equal(m.due[e.key]) || (i > 0 && e.due.Before(m.s.waiting[(i-1)/2].due)) {
			m.t.Fatalf("slot %d holds %+v, want due %v", i, e, m.due[e.key])
		}
	}
	for key, e := range m.s.entries {
		if e.key != key || (!e.ready && !e.working && e.slot < 0) {
			m.t.Fatalf("an entry nobody needs: %d %+v", key, e)
		}
	}
}
