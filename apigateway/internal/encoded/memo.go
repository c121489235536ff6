package encoded

import "sync"

// maxWholes bounds how many wholes of an edition are kept.
const maxWholes = 1024

// Memo keeps wholes that were made of one edition of the fleet, by what was asked for. It
// forgets them with the edition, so that only what is asked for now is kept. Whoever asks
// while a whole is being made waits for it, and does not make it again.
type Memo[E, Q comparable, V any] struct {
	// size is that of a whole, limit what all that are kept may have together.
	size  func(V) int
	limit int

	mu      sync.Mutex
	edition E
	wholes  map[Q]func() V
	sum     int
}

// NewMemo keeps wholes of so much together, as size tells of each.
func NewMemo[E, Q comparable, V any](limit int, size func(V) int) *Memo[E, Q, V] {
	return &Memo[E, Q, V]{size: size, limit: limit}
}

// Get is what make makes of an edition, or made of it before.
func (m *Memo[E, Q, V]) Get(edition E, q Q, make func() V) V {
	return m.whole(edition, q, make)()
}

// whole makes it, or waits for who does.
func (m *Memo[E, Q, V]) whole(edition E, q Q, make func() V) func() V {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wholes == nil || m.edition != edition {
		m.edition, m.wholes, m.sum = edition, map[Q]func() V{}, 0
	}
	if w, ok := m.wholes[q]; ok {
		return w
	}
	w := sync.OnceValue(func() V { return m.count(edition, q, make()) })
	if len(m.wholes) < maxWholes {
		m.wholes[q] = w
	}
	return w
}

// count takes a whole into the sum, or drops it when that becomes too much.
func (m *Memo[E, Q, V]) count(edition E, q Q, v V) V {
	size := m.size(v)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.edition != edition:
	case m.sum+size > m.limit:
		delete(m.wholes, q)
	default:
		m.sum += size
	}
	return v
}
