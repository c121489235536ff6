package reconcile

import (
	"math/rand/v2"
	"time"
)

// Backoff is the retry delay of a failed key: Base after the first failure, doubled after each
// further one, at most Max.
type Backoff struct {
	// Base is the first delay. 0 means that of DefaultBackoff.
	Base time.Duration
	// Max bounds the delay. 0 means that of DefaultBackoff.
	Max time.Duration
}

// DefaultBackoff reaches its maximum at the twelfth consecutive failure.
func DefaultBackoff() Backoff { return Backoff{Base: 20 * time.Millisecond, Max: 30 * time.Second} }

func (b Backoff) orDefault() Backoff {
	d := DefaultBackoff()
	if b.Base <= 0 {
		b.Base = d.Base
	}
	if b.Max <= 0 {
		b.Max = d.Max
	}
	b.Max = max(b.Max, b.Base)
	return b
}

// Delay returns the delay after a number of consecutive failures (1 or more). With a random source
// it is between half of the full delay and all of it, so that keys that failed together are not
// retried together.
func (b Backoff) Delay(failures int, random *rand.Rand) time.Duration {
	b = b.orDefault()
	d := b.Max
	if shift := failures - 1; shift < 62 && b.Base <= b.Max>>shift {
		d = b.Base << shift
	}
	if random == nil {
		return d
	}
	return d - time.Duration(random.Int64N(int64(d)/2+1))
}
