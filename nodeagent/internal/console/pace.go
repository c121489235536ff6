package console

import "time"

const (
	// Rate is how much a viewer who is up to date gets a second in the long run, in bytes.
	Rate = 1 << 20
	// Burst is how much it may get at once.
	Burst = 1 << 20
)

// Pace bounds what one viewer costs while its server floods the log. The zero value
// has its whole burst.
type Pace struct {
	spent float64
	at    time.Time
}

// Spend counts bytes and tells how long to wait before the next ones.
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
