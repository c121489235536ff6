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

// Result is what a reconciliation that succeeded asks for.
type Result struct {
	// After asks for another look after this time. 0 asks for none.
	After time.Duration
}

// Reconciler makes the world of one key as it should be, computing from state
// alone. An error is retried with back-off, except one of Kind Fenced: the key
// is somebody else's now, and is dropped. ctx ends when the queue stops.
type Reconciler[K comparable] func(ctx context.Context, key K) (Result, error)

// Observer is told about every reconciliation: how long the key was ready before
// it began, how long it took, and how it ended. It is called by several workers at once.
type Observer interface {
	Reconciled(waited, took time.Duration, err error)
}

// Options says how a queue works. Reconcile and Log are required.
type Options[K comparable] struct {
	// Name stands in the log.
	Name string
	// Reconcile does the work.
	Reconcile Reconciler[K]
	// Workers is how many keys are worked on at once; 0 means one.
	Workers int
	// Backoff is the delay after failures; its zero value is DefaultBackoff.
	Backoff Backoff
	// Timeout bounds one reconciliation; 0 means no bound.
	Timeout time.Duration
	// Resync is the period of the safety net, in which each of Keys is looked at
	// once, at a random moment, so that resyncing many keys delays none. 0 or nil
	// Keys: no resync. A key is thus looked at after two periods at the latest.
	Resync time.Duration
	// Keys lists the keys to resync. It must not block: due keys wait meanwhile.
	Keys func() iter.Seq[K]
	// Random spreads retries and resyncs. The queue alone uses it. Nil means no
	// spread: exact delays, and all keys at once.
	Random *rand.Rand
	// Observer is told about every reconciliation. Nil means nobody is.
	Observer Observer
	// Log takes failures.
	Log *slog.Logger
}

// Queue is a work queue and its workers. Make it with New. Add and AddAfter may
// be called at any time, before, during and after Run.
type Queue[K comparable] struct {
	o Options[K]
	// rearm tells the timekeeper that the earliest due time changed.
	rearm chan struct{}

	mu       sync.Mutex
	wake     sync.Cond // on mu: an entry became ready, or stopping
	schedule *schedule[K]
	running  bool
	stopping bool
}

// New makes a queue that waits for Run.
func New[K comparable](o Options[K]) *Queue[K] {
	o.Workers = max(o.Workers, 1)
	o.Backoff = o.Backoff.orDefault()
	q := &Queue[K]{o: o, rearm: make(chan struct{}, 1), schedule: newSchedule[K]()}
	q.wake.L = &q.mu
	return q
}

// Add asks for a reconciliation of key now. If one is under way, another follows it.
func (q *Queue[K]) Add(key K) {
	now := time.Now()
	q.mu.Lock()
	if q.schedule.add(key, now) {
		q.wake.Signal()
	}
	q.mu.Unlock()
}

// AddAfter asks for a reconciliation of key in d. If one is asked for earlier,
// that one stands for both. d of 0 or less is Add.
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
	default: // it will look anyway
	}
}

// Stats are the queue's numbers at one moment.
type Stats struct {
	// Ready keys wait for a worker, Working ones have one, Delayed ones wait for
	// their time. A key may be Delayed and one of the others.
	Ready, Working, Delayed int
}

// Stats counts the keys.
func (q *Queue[K]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{Ready: q.schedule.count, Working: q.schedule.working, Delayed: len(q.schedule.heap)}
}

// Run works until ctx is done, waits for all workers and returns nil. Keys that
// are still ready or waiting stay for a later Run. Only one Run at a time: a
// second one is refused with Conflict.
func (q *Queue[K]) Run(ctx context.Context) error {
	q.mu.Lock()
	if q.running {
		q.mu.Unlock()
		return errs.New(errs.Conflict, "the queue %s runs already", q.o.Name)
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

// expire wakes what is due and sets the timer for the next.
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

// work is one worker.
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

// take waits for a ready entry; nil means stop. The entry is the worker's alone
// until finish, but for the flags that the schedule sets under the lock.
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

// reconcile calls the Reconciler within its bound and turns a panic into an error.
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

// finish gives the entry back with what it asks for.
func (q *Queue[K]) finish(ctx context.Context, e *entry[K], res Result, err error) {
	key := e.key // the entry may be reused as soon as the lock is free
	q.mu.Lock()
	failures, delay := q.outcome(ctx, e, res, err)
	rearm := delay > 0 && q.schedule.addAt(key, time.Now().Add(delay))
	if q.schedule.done(e, time.Now()) {
		q.wake.Signal()
	}
	q.mu.Unlock()
	if rearm {
		q.rearmTimer()
	}
	if err != nil && ctx.Err() == nil {
		q.report(key, err, failures, delay)
	}
}

// outcome counts failures and says when the entry wants to be looked at again; 0 means never.
func (q *Queue[K]) outcome(ctx context.Context, e *entry[K], res Result, err error) (failures int, delay time.Duration) {
	switch {
	case err == nil:
		e.failures = 0
		return 0, max(res.After, 0)
	case errs.Is(err, errs.Fenced):
		e.failures = 0
		return 0, 0
	case ctx.Err() != nil: // cut off by the stop, owed to a later Run
		e.again = true
		return e.failures, 0
	}
	e.failures++
	return e.failures, q.o.Backoff.Delay(e.failures, q.o.Random)
}

// report logs a failure. Conflicts are the daily bread of optimistic writes.
func (q *Queue[K]) report(key K, err error, failures int, delay time.Duration) {
	log := q.o.Log.With("queue", q.o.Name, "key", key, "error", err)
	switch {
	case errs.Is(err, errs.Fenced):
		log.Info("key dropped: no longer owned")
	case errs.Is(err, errs.Conflict) && failures < 3:
		log.Debug("reconciliation lost a race", "failures", failures, "retry_in", delay)
	default:
		log.Warn("reconciliation failed", "failures", failures, "retry_in", delay)
	}
}
