package controller

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

var errNoSession = errs.New(errs.Unavailable, "the node has no session")

const (
	// maxBatch bounds the statuses in one transaction.
	maxBatch = 48
	// shortMessageBytes is the length in bytes to which the message of a refused status is cut.
	shortMessageBytes = 256
	// commitTimeout bounds one attempt. The outcome is read back afterwards.
	commitTimeout = 3 * time.Second
	// unwrittenAfter is how long a crash may stay unwritten before the agent decides alone.
	unwrittenAfter = 2 * time.Second
	firstRetry     = 50 * time.Millisecond
	lastRetry      = time.Second
)

// writeDelay is how long a status is delayed, in case a newer one replaces it.
func writeDelay(s fleet.State) time.Duration {
	switch s {
	case fleet.Preparing:
		return 30 * time.Millisecond
	case fleet.Starting, fleet.Stopping:
		return 10 * time.Millisecond
	case fleet.Unplaced, fleet.Online, fleet.Stopped, fleet.Crashed, fleet.Failed, fleet.Sleeping, fleet.Offline:
	}
	return 0
}

// slot is the state of one instance's status record.
type slot struct {
	want  fleet.Status
	dirty bool
	due   time.Time
	// since is when want was reported.
	since time.Time
	// crashReported is set when StatusUnwritten was sent.
	crashReported bool
	// last is set when the instance is forgotten. Its final status replaces a record that
	// exists, then the slot is deleted.
	last bool
	// rev is the record's revision; valid if read is true.
	rev  int64
	read bool
	// ended is the generation whose final status was written last. The record is read before any later
	// status of that generation, which must not replace the final one.
	ended int64
}

// writer writes statuses to the store. One goroutine runs it; the other methods are safe for
// concurrent use.
type writer struct {
	store *store.Client
	fence func() (store.Fence, bool)
	send  func(fleet.InstanceID, machine.Event)
	// checkSession is called when the store refuses the session's fence.
	checkSession func()
	log          *slog.Logger
	kick         chan struct{}
	crashed      chan struct{}

	mu    sync.Mutex
	slots map[fleet.InstanceID]*slot
	// waiters are closed when nothing is left to write; busy is true during a write.
	waiters []chan struct{}
	busy    bool
}

func newWriter(cfg Config, send func(fleet.InstanceID, machine.Event)) *writer {
	return &writer{
		store: cfg.Store, fence: cfg.Fence, checkSession: cfg.CheckSession, send: send, log: cfg.Log, slots: map[fleet.InstanceID]*slot{},
		kick: make(chan struct{}, 1), crashed: make(chan struct{}, 1),
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// report sets an instance's newest status. The first status of a first generation creates
// the record without reading it.
func (w *writer) report(s fleet.Status) {
	now := time.Now()
	w.mu.Lock()
	sl, ok := w.slots[s.Instance]
	if !ok {
		sl = &slot{read: s.Generation == 1 && s.State == fleet.Preparing}
		w.slots[s.Instance] = sl
	}
	sl.due = now.Add(writeDelay(s.State))
	sl.want, sl.dirty, sl.since, sl.crashReported, sl.last = s, true, now, false, false
	w.mu.Unlock()
	signal(w.kick)
	if s.State == fleet.Crashed {
		signal(w.crashed)
	}
}

// joined makes the writer read every record again, since others may have written meanwhile.
func (w *writer) joined() {
	now := time.Now()
	w.mu.Lock()
	for _, sl := range w.slots {
		if !sl.dirty {
			sl.dirty, sl.due, sl.since = true, now, now
		}
		// A record that was never read or written may still be created without reading it.
		sl.read = sl.read && sl.rev == 0
	}
	w.mu.Unlock()
	signal(w.kick)
}

// unwritten counts the statuses that are not yet written. since is when the oldest of them
// was reported.
func (w *writer) unwritten() (n int, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sl := range w.slots {
		if !sl.dirty {
			continue
		}
		if n++; since.IsZero() || sl.since.Before(since) {
			since = sl.since
		}
	}
	return n, since
}

// forget drops an instance after its final status is written. It does not create a record
// for an instance that has none.
func (w *writer) forget(id fleet.InstanceID) {
	w.mu.Lock()
	if sl, ok := w.slots[id]; ok && sl.dirty && (!sl.read || sl.rev != 0) {
		sl.last = true
	} else {
		delete(w.slots, id)
	}
	w.wakeWaiters()
	w.mu.Unlock()
}

// flush waits until nothing is left to write.
func (w *writer) flush(ctx context.Context) error {
	idle := make(chan struct{})
	w.mu.Lock()
	w.waiters = append(w.waiters, idle)
	w.wakeWaiters()
	w.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return errs.Wrap("controller.flush", ctx.Err())
	}
}

// wakeWaiters releases the callers of flush if everything is written. w.mu is held.
func (w *writer) wakeWaiters() {
	if w.busy {
		return
	}
	for _, sl := range w.slots {
		if sl.dirty {
			return
		}
	}
	for _, c := range w.waiters {
		close(c)
	}
	w.waiters = nil
}

// run writes statuses until ctx ends.
func (w *writer) run(ctx context.Context) {
	retry := firstRetry
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.kick:
		case <-timer.C:
		}
		for ctx.Err() == nil {
			items, next := w.take()
			if len(items) == 0 {
				if !next.IsZero() {
					timer.Reset(max(time.Until(next), 0))
				}
				break
			}
			if err := w.write(ctx, items); err != nil {
				if retry == firstRetry && ctx.Err() == nil && !errors.Is(err, errNoSession) { // once per outage; membership logs a lost session
					w.log.Warn("cannot write statuses: retrying", "count", len(items), "error", err)
				}
				w.settle(items)
				pause.For(ctx, retry)
				retry = min(2*retry, lastRetry)
				continue
			}
			w.settle(items)
			retry = firstRetry
		}
	}
}

// item is a status that is being written.
type item struct {
	status fleet.Status
	rev    int64
	read   bool
	last   bool
	// short is set when the texts of the status were removed because the store refused its size.
	short bool
	// done is set when the store holds the status or does not need it.
	done bool
}

// take returns the statuses that are due. next is when the first of the others is due.
func (w *writer) take() (items []*item, next time.Time) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sl := range w.slots {
		switch {
		case !sl.dirty:
		case sl.due.After(now) || len(items) == maxBatch:
			if next.IsZero() || sl.due.Before(next) {
				next = sl.due
			}
		default:
			items = append(items, &item{status: sl.want, rev: sl.rev, read: sl.read && sl.want.Generation != sl.ended, last: sl.last})
		}
	}
	w.busy = len(items) > 0
	return items, next
}

// settle applies the outcome of a write. A status that changed meanwhile stays dirty.
func (w *writer) settle(items []*item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	for _, it := range items {
		sl, ok := w.slots[it.status.Instance]
		if !ok {
			continue
		}
		sl.rev, sl.read = it.rev, it.read
		if it.done && it.status.State.Terminal() {
			sl.ended = it.status.Generation
		}
		if it.done && sl.want.Generation == it.status.Generation && sl.want.ChangedAt.Equal(it.status.ChangedAt) && sl.want.State == it.status.State {
			if sl.dirty = false; sl.last {
				delete(w.slots, it.status.Instance)
			}
		}
	}
	w.wakeWaiters()
}

// write writes the items after reading the records whose revisions are unknown. It splits
// them into transactions by size.
func (w *writer) write(ctx context.Context, items []*item) error {
	fence, ok := w.fence()
	if !ok {
		return errNoSession
	}
	if err := w.readAll(ctx, items); err != nil {
		return err
	}
	txn := store.Txn{Fences: []store.Fence{fence}}
	var held []*item
	for _, it := range items {
		if it.done {
			continue
		}
		wr := it.write(fence)
		if len(held) > 0 && (store.Txn{Writes: append(slices.Clip(txn.Writes), wr)}).Bytes() > store.FullBytes {
			if err := w.commit(ctx, fence, held); err != nil {
				return err
			}
			txn.Writes, held = nil, nil
		}
		txn.Writes, held = append(txn.Writes, wr), append(held, it)
	}
	return w.commit(ctx, fence, held)
}

// write replaces the record at the revision that was read.
func (it *item) write(fence store.Fence) store.Write {
	s := it.status
	s.Epoch = fence.Epoch()
	return store.Replace(keys.Status(s.Instance), s, it.rev)
}

// readAll reads the records of the items whose revisions are unknown.
func (w *writer) readAll(ctx context.Context, items []*item) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	for _, it := range items {
		if err := w.read(ctx, it); err != nil {
			return err
		}
	}
	return nil
}

// commit writes items in one transaction. If the store refuses its size or one of its keys, commit
// retries with each half, so that one status does not block others; see shorten.
func (w *writer) commit(ctx context.Context, fence store.Fence, items []*item) error {
	if len(items) == 0 {
		return nil
	}
	txn := store.Txn{Fences: []store.Fence{fence}}
	byKey := map[string]*item{}
	for _, it := range items {
		wr := it.write(fence)
		txn.Writes = append(txn.Writes, wr)
		byKey[wr.Key()] = it
	}
	within, cancel := context.WithTimeout(ctx, commitTimeout)
	rev, err := w.store.Commit(within, txn)
	cancel()
	switch half := len(items) / 2; {
	case err == nil:
		for _, it := range items {
			it.rev, it.done = rev, true
			w.written(it.status)
		}
		return nil
	case half > 0 && (errs.Is(err, errs.TooLarge) || errs.Is(err, errs.Denied)): // a gateway denies an instance that is on another node now
		return errors.Join(w.commit(ctx, fence, items[:half]), w.commit(ctx, fence, items[half:]))
	case errs.Is(err, errs.TooLarge):
		return w.shorten(ctx, fence, items[0], err)
	case errs.Is(err, errs.Denied):
		w.log.Warn("a status is not written", "instance", string(items[0].status.Instance), "state", string(items[0].status.State), "error", err)
		items[0].done = true
		return nil
	}
	if lost := store.Lost(err); lost != nil && lost.Fence {
		w.checkSession()
	}
	return w.refused(byKey, err)
}

// shorten writes a status that is too large for the store without its texts, and notes that
// in its message. If the store refuses it again, it is dropped until there is a newer one.
func (w *writer) shorten(ctx context.Context, fence store.Fence, it *item, refusal error) error {
	if it.short {
		w.log.Error("the store refuses a status even without its texts: it is not written", "instance", string(it.status.Instance), "state", string(it.status.State), "error", refusal)
		it.done = true
		return nil
	}
	w.log.Error("the store refuses a status because of its size: it is written without its texts", "instance", string(it.status.Instance), "state", string(it.status.State), "error", refusal)
	it.short = true
	it.status.Message = validate.ClipMessage(it.status.Message, shortMessageBytes) + "; the store refused the whole status for its size, so its address and further texts are left out"
	it.status.HostAddress, it.status.Crashes = "", nil
	return w.commit(ctx, fence, []*item{it})
}

// refused marks the records to read again before the next attempt. A conflict with another
// writer is no error: the next attempt resolves it.
func (w *writer) refused(byKey map[string]*item, err error) error {
	lost := store.Lost(err)
	if lost == nil { // the outcome of everything is unknown
		for _, it := range byKey {
			it.read = false
		}
		return err
	}
	for _, key := range lost.Keys {
		if it, ok := byKey[key]; ok {
			it.read = false
		}
	}
	if lost.Fence {
		return err
	}
	return nil
}

// written tells the instance that its final status is stored.
func (w *writer) written(s fleet.Status) {
	if s.State.Terminal() {
		w.send(s.Instance, machine.StatusWritten{Generation: s.Generation})
	}
}

// read reads the record of an item and decides whether to replace it. A record that is not
// to be replaced is read again for each later status of the instance.
func (w *writer) read(ctx context.Context, it *item) error {
	if it.read {
		return nil
	}
	have, err := store.Get(ctx, w.store, keys.Status(it.status.Instance))
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	it.read, it.rev = true, have.ModRev
	switch want := it.status; {
	case it.last && have.ModRev == 0:
		it.done = true
	case have.ModRev == 0 || have.Generation < want.Generation:
	case have.Generation > want.Generation: // another node runs a newer generation
		it.done, it.read = true, false
		w.send(want.Instance, machine.Superseded{Generation: want.Generation})
	case have.State.Terminal():
		it.done, it.read = true, false
		if want.State.Terminal() {
			w.written(want)
			break
		}
		w.send(want.Instance, machine.Superseded{Generation: want.Generation})
	case equal(have, want):
		it.done = true
	}
	return nil
}

// equal compares what matters in two statuses. The session is left out: a new one is no
// reason to write the record again.
func equal(have, want fleet.Status) bool {
	return have.State == want.State && have.Node == want.Node && have.PID == want.PID && have.Restarts == want.Restarts &&
		have.HostAddress == want.HostAddress && have.TokenHash == want.TokenHash && (have.Wake == nil) == (want.Wake == nil) && reflect.DeepEqual(have.Exit, want.Exit)
}

// watchUnwritten tells instances when their crash could not be written for unwrittenAfter.
func (w *writer) watchUnwritten(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.crashed:
		}
		for next := w.warnUnwritten(); !next.IsZero() && ctx.Err() == nil; next = w.warnUnwritten() {
			pause.For(ctx, time.Until(next))
		}
	}
}

// warnUnwritten tells the instances that are due and returns when the next one is.
func (w *writer) warnUnwritten() (next time.Time) {
	now := time.Now()
	var stuck []fleet.Status
	w.mu.Lock()
	for _, sl := range w.slots {
		if !sl.dirty || sl.crashReported || sl.want.State != fleet.Crashed {
			continue
		}
		if due := sl.since.Add(unwrittenAfter); due.After(now) {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		sl.crashReported = true
		stuck = append(stuck, sl.want)
	}
	w.mu.Unlock()
	for _, s := range stuck {
		w.send(s.Instance, machine.StatusUnwritten{Generation: s.Generation})
	}
	return next
}
