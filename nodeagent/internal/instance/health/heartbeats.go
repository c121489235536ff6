package health

import (
	"context"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// Heartbeats records the heartbeats of one run of a server. Create it with NewHeartbeats.
type Heartbeats struct {
	mu sync.Mutex
	// last is the time of the last heartbeat, or of the run's start before the first.
	last    time.Time
	ready   bool
	changed chan struct{}
}

// NewHeartbeats returns the Heartbeats of a run without heartbeats.
func NewHeartbeats() *Heartbeats { return &Heartbeats{last: time.Now(), changed: make(chan struct{})} }

// Beat records a heartbeat. ready is true if the server reports that it is ready.
func (h *Heartbeats) Beat(ready bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.ready = time.Now(), h.ready || ready
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *Heartbeats) state() (last time.Time, ready bool, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, h.ready, h.changed
}

// awaitReady waits until the server has reported that it is ready.
func (h *Heartbeats) awaitReady(ctx context.Context) error {
	return h.await(ctx, func(_ time.Time, ready bool) bool { return ready })
}

// awaitBeat waits for a heartbeat after a time.
func (h *Heartbeats) awaitBeat(ctx context.Context, after time.Time) error {
	return h.await(ctx, func(last time.Time, _ bool) bool { return last.After(after) })
}

// await waits until a state satisfies a condition.
func (h *Heartbeats) await(ctx context.Context, ok func(last time.Time, ready bool) bool) error {
	for {
		last, ready, changed := h.state()
		if ok(last, ready) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errs.Wrap("health.await", ctx.Err())
		}
	}
}

// silenceSteps is the number of steps in which a silence is measured. In each step a heartbeat must
// have been able to arrive.
const silenceSteps = 4

// awaitSilence waits until there was no heartbeat for a time. It starts again whenever no heartbeat
// could have arrived, or a step took so long that the agent itself was suspended. since is when
// the silence began.
func (h *Heartbeats) awaitSilence(ctx context.Context, limit time.Duration, reachable func(context.Context) bool) (since time.Time, err error) {
	step := limit / silenceSteps
	since = time.Now()
	timer := time.NewTimer(step)
	defer timer.Stop()
	looked := time.Now()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return since, errs.Wrap("health.awaitSilence", ctx.Err())
		}
		late := time.Since(looked) > 2*step+time.Second
		last, _, _ := h.state()
		if last.After(since) {
			since = last
		}
		if late || time.Since(since) >= step && !reachable(ctx) {
			since = time.Now()
		}
		if time.Since(since) >= limit {
			return since, nil
		}
		looked = time.Now()
		timer.Reset(min(step, limit-time.Since(since)))
	}
}
