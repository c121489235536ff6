package bodycache

import "sync"

// maxWholes limits the number of cached values.
const maxWholes = 1024

// Memo caches values computed from one edition (a snapshot version), keyed by request. A new
// edition clears it. Concurrent callers for the same key wait for one computation.
type Memo[E, Q comparable, V any] struct {
	// size measures a value. limit bounds the sum over all cached values.
	size  func(V) int
	limit int

	mu      sync.Mutex
	edition E
	wholes  map[Q]func() V
	sum     int
}

// NewMemo returns a Memo whose cached values have a total size of at most limit.
func NewMemo[E, Q comparable, V any](limit int, size func(V) int) *Memo[E, Q, V] {
	return &Memo[E, Q, V]{size: size, limit: limit}
}

// Get returns the cached value for an edition and key, or computes it with make.
func (m *Memo[E, Q, V]) Get(edition E, q Q, make func() V) V {
	return m.whole(edition, q, make)()
}

// whole returns a function that computes the value or waits for a running computation.
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

// count adds a value to the sum, or drops it if the sum would exceed the limit.
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
