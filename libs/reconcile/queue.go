package reconcile

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// Result is the result of a successful reconciliation.
type Result struct {
	// After requests another reconciliation after this time. 0 requests none.
	After time.Duration
}

// Reconciler brings one key to its desired state, computing only from current state. An error is
// retried with back-off, except one of Kind Fenced, which drops the key because another process
// owns it. ctx ends when the queue stops.
type Reconciler[K comparable] func(ctx context.Context, key K) (Result, error)

// Observer receives every reconciliation: how long the key was ready before it started, how long
// it took, and its result. Workers call it concurrently.
type Observer interface {
	Reconciled(waited, took time.Duration, err error)
}

// Options configures a queue. Reconcile and Log are required.
type Options[K comparable] struct {
	// Name identifies the queue in the log.
	Name string
	// Reconcile does the work.
	Reconcile Reconciler[K]
	// Workers is the number of concurrent workers. 0 means one.
	Workers int
	// Backoff is the delay after failures. The zero value means DefaultBackoff.
	Backoff Backoff
	// Timeout bounds one reconciliation. 0 means no limit.
	Timeout time.Duration
	// Resync is the period of the resync, in which each of Keys is added once at a random
	// moment. A key is thus reconciled after two periods at the latest. There is no resync if
	// Resync is 0 or Keys is nil.
	Resync time.Duration
	// Keys lists the keys to resync. It must not block.
	Keys func() iter.Seq[K]
	// Random spreads retries and resyncs. Only the queue may use it. Nil means exact delays, and a
	// resync of all keys at once.
	Random *rand.Rand
	// Observer receives every reconciliation. It may be nil.
	Observer Observer
	// Log receives failures.
	Log *slog.Logger
}

// Queue is a work queue with its workers. Create it with New. Add and AddAfter may be called at
// any time, also before and after Run.
type Queue[K comparable] struct {
	o Options[K]
	// rearm signals that the earliest due time has changed.
	rearm chan struct{}

	mu       sync.Mutex
	wake     sync.Cond // on mu: an entry became ready, or stopping
	schedule *schedule[K]
	running  bool
	stopping bool
}

// New returns a queue. Run starts it.
func New[K comparable](o Options[K]) *Queue[K] {
	o.Workers = max(o.Workers, 1)
	o.Backoff = o.Backoff.orDefault()
	q := &Queue[K]{o: o, rearm: make(chan struct{}, 1), schedule: newSchedule[K]()}
	q.wake.L = &q.mu
	return q
}

// Add requests a reconciliation of key now. If one is in progress, another one follows.
func (q *Queue[K]) Add(key K) {
	now := time.Now()
	q.mu.Lock()
	if q.schedule.add(key, now) {
		q.wake.Signal()
	}
	q.mu.Unlock()
}

// AddAfter requests a reconciliation of key after d, unless an earlier one is already requested.
// If d is not positive, it is Add.
func (q *Queue[K]) AddAfter(key K, d time.Duration) {
	if d <= 0 {
		q.Add(key)
		return
	}
	due := time.Now().Add(d)
	q.mu.Lock()
	earlier := q.schedule.addAt(key, due)
	q.mu.Unlock()
	if earlier {
		q.rearmTimer()
	}
}

func (q *Queue[K]) rearmTimer() {
	select {
	case q.rearm <- struct{}{}:
	default: // a signal is already pending
	}
}

// Stats contains the numbers of keys in the queue.
type Stats struct {
	// Ready keys wait for a worker, Working keys have one, Delayed keys wait for their time. A key
	// may be Delayed and also Ready or Working.
	Ready, Working, Delayed int
}

// Stats counts the keys.
func (q *Queue[K]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{Ready: len(q.schedule.ready), Working: q.schedule.working, Delayed: len(q.schedule.waiting)}
}

// Run works until ctx is done, waits for all workers and returns nil. Keys that are still ready or
// delayed stay for a later Run. A second concurrent Run returns a Conflict error.
func (q *Queue[K]) Run(ctx context.Context) error {
	q.mu.Lock()
	if q.running {
		q.mu.Unlock()
		return errs.New(errs.Conflict, "the queue %s is already running", q.o.Name)
	}
	q.running, q.stopping = true, false
	q.mu.Unlock()

	var all sync.WaitGroup
	for range q.o.Workers {
		all.Go(func() { q.work(ctx) })
	}
	q.keepTime(ctx)

	q.mu.Lock()
	q.stopping = true
	q.wake.Broadcast()
	q.mu.Unlock()
	all.Wait()

	q.mu.Lock()
	q.running = false
	q.mu.Unlock()
	return nil
}

// keepTime moves due keys to the workers and starts resyncs until ctx is done.
func (q *Queue[K]) keepTime(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var resync <-chan time.Time
	if q.o.Resync > 0 && q.o.Keys != nil {
		ticker := time.NewTicker(q.o.Resync)
		defer ticker.Stop()
		resync = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-q.rearm:
		case <-resync:
			q.resync()
		}
		q.expire(timer)
	}
}

// expire makes due keys ready and sets the timer for the next one.
func (q *Queue[K]) expire(timer *time.Timer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for range q.schedule.expire(now) {
		q.wake.Signal()
	}
	if due, ok := q.schedule.next(); ok {
		timer.Reset(due.Sub(now))
	} else {
		timer.Stop()
	}
}

func (q *Queue[K]) resync() {
	for key := range q.o.Keys() {
		q.mu.Lock()
		if q.o.Random == nil {
			if q.schedule.add(key, time.Now()) {
				q.wake.Signal()
			}
		} else {
			spread := time.Duration(q.o.Random.Int64N(int64(q.o.Resync)))
			q.schedule.addAt(key, time.Now().Add(spread))
		}
		q.mu.Unlock()
	}
}

// work is the loop of one worker.
func (q *Queue[K]) work(ctx context.Context) {
	for ctx.Err() == nil {
		e := q.take()
		if e == nil {
			return
		}
		waited := time.Since(e.since)
		began := time.Now()
		res, err := q.reconcile(ctx, e.key)
		took := time.Since(began)
		if q.o.Observer != nil {
			q.o.Observer.Reconciled(waited, took, err)
		}
		q.finish(ctx, e, res, err)
	}
}

// take waits for a ready entry. It returns nil when the queue stops. The worker owns the entry
// until finish, except for the flags that the schedule sets under the lock.
func (q *Queue[K]) take() *entry[K] {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.stopping {
		if e := q.schedule.take(); e != nil {
			return e
		}
		q.wake.Wait()
	}
	return nil
}

// reconcile calls the Reconciler with the timeout and turns a panic into an error.
func (q *Queue[K]) reconcile(ctx context.Context, key K) (res Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			q.o.Log.Error("panic in reconciliation", "queue", q.o.Name, "key", key, "panic", p, "stack", string(debug.Stack()))
			err = errs.New(errs.Internal, "panic: %s", fmt.Sprint(p))
		}
	}()
	if q.o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.o.Timeout)
		defer cancel()
	}
	return q.o.Reconcile(ctx, key)
}

// finish returns the entry to the schedule and applies the result.
func (q *Queue[K]) finish(ctx context.Context, e *entry[K], res Result, err error) {
	q.mu.Lock()
	failures, delay := q.outcome(ctx, e, res, err)
	rearm := delay > 0 && q.schedule.addAt(e.key, time.Now().Add(delay))
	if q.schedule.done(e, time.Now()) {
		q.wake.Signal()
	}
	q.mu.Unlock()
	if rearm {
		q.rearmTimer()
	}
	if err != nil && ctx.Err() == nil {
		q.report(e.key, err, failures, delay)
	}
}

// outcome counts failures and returns the delay until the next reconciliation, 0 for none.
func (q *Queue[K]) outcome(ctx context.Context, e *entry[K], res Result, err error) (failures int, delay time.Duration) {
	switch {
	case err == nil:
		e.failures = 0
		return 0, max(res.After, 0)
	case errs.Is(err, errs.Fenced):
		e.failures = 0
		return 0, 0
	case ctx.Err() != nil: // interrupted by the stop; a later Run continues
		e.again = true
		return e.failures, 0
	}
	e.failures++
	return e.failures, q.o.Backoff.Delay(e.failures, q.o.Random)
}

// report logs a failure. Conflicts are normal with optimistic concurrency, so the first ones are
// only logged at debug level.
func (q *Queue[K]) report(key K, err error, failures int, delay time.Duration) {
	log := q.o.Log.With("queue", q.o.Name, "key", key, "error", err)
	switch {
	case errs.Is(err, errs.Fenced):
		log.Info("key dropped: no longer owned")
	case errs.Is(err, errs.Conflict) && failures < 3:
		log.Debug("reconciliation conflicted with another write", "failures", failures, "retry_in", delay)
	default:
		log.Warn("reconciliation failed", "failures", failures, "retry_in", delay)
	}
}
