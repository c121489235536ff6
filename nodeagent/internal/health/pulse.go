package health

import (
	"context"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// Pulse keeps the heartbeats of one run of a server. Make it with NewPulse.
type Pulse struct {
	mu sync.Mutex
	// last is the time of the last heartbeat, or of the run's start before the first.
	last  time.Time
	ready bool
	news  chan struct{}
}

// NewPulse is the pulse of a run that has not spoken yet.
func NewPulse() *Pulse { return &Pulse{last: time.Now(), news: make(chan struct{})} }

// Beat takes a sign of life. ready is true when the server says that it serves.
func (p *Pulse) Beat(ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.ready = time.Now(), p.ready || ready
	close(p.news)
	p.news = make(chan struct{})
}

func (p *Pulse) look() (last time.Time, ready bool, news <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.ready, p.news
}

// awaitReady waits until the server has said that it is ready.
func (p *Pulse) awaitReady(ctx context.Context) error {
	for {
		_, ready, news := p.look()
		if ready {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return errs.Wrap("health.AwaitReady", ctx.Err())
		}
	}
}

// looks is in how many steps a silence is waited out. In each of them what a server
// says must have been able to arrive.
const looks = 4

// silence waits until the server has not spoken for a time, or ctx ends. It begins
// anew whenever a look finds that nothing could have arrived, or comes so late that
// the agent itself must have stood still. since is the moment after which nothing was
// heard.
func (p *Pulse) silence(ctx context.Context, limit time.Duration, open func(context.Context) bool) (since time.Time, err error) {
	step := limit / looks
	since = time.Now()
	timer := time.NewTimer(step)
	defer timer.Stop()
	looked := time.Now()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return since, errs.Wrap("health.silence", ctx.Err())
		}
		late := time.Since(looked) > 2*step+time.Second
		last, _, _ := p.look()
		if last.After(since) {
			since = last
		}
		if late || time.Since(since) >= step && !open(ctx) {
			since = time.Now()
		}
		if time.Since(since) >= limit {
			return since, nil
		}
		looked = time.Now()
		timer.Reset(min(step, limit-time.Since(since)))
	}
}

// spoken waits until the server speaks after a time.
func (p *Pulse) spoken(ctx context.Context, after time.Time) error {
	for {
		last, _, news := p.look()
		if last.After(after) {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return errs.Wrap("health.spoken", ctx.Err())
		}
	}
}
