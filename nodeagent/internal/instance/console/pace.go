package console

import "time"

const (
	// Rate is the long-term rate of a live viewer in bytes per second.
	Rate = 1 << 20
	// Burst is how many bytes it may get at once.
	Burst = 1 << 20
)

// Pace is a token bucket that limits the output to one viewer. The zero value is full.
type Pace struct {
	spent float64
	at    time.Time
}

// Spend takes bytes from the bucket and returns how long to wait before the next ones.
func (p *Pace) Spend(bytes int, now time.Time) time.Duration {
	if !p.at.IsZero() {
		p.spent = max(0, p.spent-now.Sub(p.at).Seconds()*Rate)
	}
	p.at = now
	p.spent += float64(bytes)
	if p.spent <= Burst {
		return 0
	}
	return time.Duration((p.spent - Burst) / Rate * float64(time.Second))
}
