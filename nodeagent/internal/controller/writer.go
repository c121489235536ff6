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
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
)

var errNoSession = errs.New(errs.Unavailable, "the node has no session")

const (
	// batch is how many statuses one transaction holds at most.
	batch = 48
	// shortMessage is what is left of the message of a status that the store refused.
	shortMessage = 256
	// commitTimeout bounds one attempt; the outcome is read back afterwards.
	commitTimeout = 3 * time.Second
	// doubtAfter is how long a crash may stay unwritten before the agent acts alone.
	doubtAfter = 2 * time.Second
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
)

// patience is how long a status may wait for a newer one that makes it needless.
func patience(s fleet.State) time.Duration {
	switch s {
	case fleet.Preparing:
		return 30 * time.Millisecond
	case fleet.Starting, fleet.Stopping:
		return 10 * time.Millisecond
	case fleet.Unplaced, fleet.Online, fleet.Stopped, fleet.Crashed, fleet.Failed, fleet.Offline:
	}
	return 0
}

// slot is what is known of one instance's status record.
type slot struct {
	want  fleet.Status
	dirty bool
	due   time.Time
	// since is when want was reported.
	since time.Time
	told  bool // that it could not be written
	// last is true once the instance is forgotten: the record is told how it ended if
	// there still is one, and the slot goes.
	last bool
	// rev is the record's revision; meaningful when read is true.
	rev  int64
	read bool
}

// writer brings statuses to the store. One goroutine runs it; report and the like
// may be called from any.
type writer struct {
	store *store.Client
	fence func() (store.Fence, bool)
	tell  func(fleet.InstanceID, machine.Event)
	// suspect is called when the store refused the session's fence.
	suspect func()
	log     *slog.Logger
	kick    chan struct{}
	doubt   chan struct{}

	mu    sync.Mutex
	slots map[fleet.InstanceID]*slot
	// waiters are closed when nothing is left to write; busy is true while something is being written.
	waiters []chan struct{}
	busy    bool
}

func newWriter(cfg Config, tell func(fleet.InstanceID, machine.Event)) *writer {
	return &writer{
		store: cfg.Store, fence: cfg.Fence, suspect: cfg.Doubt, tell: tell, log: cfg.Log, slots: map[fleet.InstanceID]*slot{},
		kick: make(chan struct{}, 1), doubt: make(chan struct{}, 1),
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// report notes an instance's newest status. A first generation that nobody has
// reported before needs no look at the record: it is created.
func (w *writer) report(s fleet.Status) {
	now := time.Now()
	w.mu.Lock()
	sl, ok := w.slots[s.Instance]
	if !ok {
		sl = &slot{read: s.Generation == 1 && s.State == fleet.Preparing}
		w.slots[s.Instance] = sl
	}
	sl.due = now.Add(patience(s.State))
	sl.want, sl.dirty, sl.since, sl.told, sl.last = s, true, now, false, false
	w.mu.Unlock()
	signal(w.kick)
	if s.State == fleet.Crashed {
		signal(w.doubt)
	}
}

// joined has every record looked at again: others may have written while there was no session.
func (w *writer) joined() {
	now := time.Now()
	w.mu.Lock()
	for _, sl := range w.slots {
		if !sl.dirty {
			sl.dirty, sl.due, sl.since = true, now, now // it waits from now on
		}
		// A record that was never read or written may still be created blindly.
		sl.read = sl.read && sl.rev == 0
	}
	w.mu.Unlock()
	signal(w.kick)
}

// unwritten is how many statuses the store does not have yet, and since when the
// oldest of them waits.
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

// forget lets go of an instance that nobody asks about any more, once its record tells
// how it ended. A record that does not exist is not made.
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

// wakeWaiters releases those who flush when all is written. w.mu is held.
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

// run writes until ctx ends.
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
				if retry == firstRetry && ctx.Err() == nil && !errors.Is(err, errNoSession) { // once per outage; membership tells of a lost session
					w.log.Warn("statuses not written yet, trying on", "count", len(items), "error", err)
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

// item is one status under way.
type item struct {
	status fleet.Status
	rev    int64
	read   bool
	last   bool
	// short is set when the status has lost its texts, because the store refused them.
	short bool
	// done is set when the store holds the status, or needs it no longer.
	done bool
}

// take picks what is due. next is when the first of the rest is.
func (w *writer) take() (items []*item, next time.Time) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sl := range w.slots {
		switch {
		case !sl.dirty:
		case sl.due.After(now) || len(items) == batch:
			if next.IsZero() || sl.due.Before(next) {
				next = sl.due
			}
		default:
			items = append(items, &item{status: sl.want, rev: sl.rev, read: sl.read, last: sl.last})
		}
	}
	w.busy = len(items) > 0
	return items, next
}

// settle takes over what became of the items; what changed meanwhile stays dirty.
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
		if it.done && sl.want.Generation == it.status.Generation && sl.want.ChangedAt.Equal(it.status.ChangedAt) && sl.want.State == it.status.State {
			if sl.dirty = false; sl.last {
				delete(w.slots, it.status.Instance)
			}
		}
	}
	w.wakeWaiters()
}

// write brings the items to the store, reading first what is not known. It splits them
// into transactions by bytes.
func (w *writer) write(ctx context.Context, items []*item) error {
	fence, ok := w.fence()
	if !ok {
		return errNoSession
	}
	if err := w.lookAll(ctx, items); err != nil {
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

// write replaces the record that the item was compared with.
func (it *item) write(fence store.Fence) store.Write {
	s := it.status
	s.Epoch = fence.Epoch()
	return store.Replace(store.StatusKey(s.Instance), s, it.rev)
}

// lookAll reads the records of the items whose revisions are not known.
func (w *writer) lookAll(ctx context.Context, items []*item) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	for _, it := range items {
		if err := w.look(ctx, it); err != nil {
			return err
		}
	}
	return nil
}

// commit writes items in one transaction. Where the store refuses it for its size, each
// half is tried alone, so that one status keeps no other waiting; see shorten.
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
	case errs.Is(err, errs.TooLarge) && half > 0:
		return errors.Join(w.commit(ctx, fence, items[:half]), w.commit(ctx, fence, items[half:]))
	case errs.Is(err, errs.TooLarge):
		return w.shorten(ctx, fence, items[0], err)
	}
	if lost := store.Lost(err); lost != nil && lost.Fence {
		w.suspect()
	}
	return w.refused(byKey, err)
}

// shorten writes a status that the store refuses for its size without its texts, and says
// so in it. One that is refused all the same is set apart until there is a newer one.
func (w *writer) shorten(ctx context.Context, fence store.Fence, it *item, refusal error) error {
	if it.short {
		w.log.Error("the store refuses a status also without its texts: it is not written", "instance", string(it.status.Instance), "state", string(it.status.State), "error", refusal)
		it.done = true
		return nil
	}
	w.log.Error("the store refuses a status for its size: it is written without its texts", "instance", string(it.status.Instance), "state", string(it.status.State), "error", refusal)
	it.short = true
	it.status.Message = fleet.ClipMessage(it.status.Message, shortMessage) + "; the store refused the whole status for its size, so its address and further texts are left out"
	it.status.HostAddress, it.status.Crashes = "", nil
	return w.commit(ctx, fence, []*item{it})
}

// refused marks what has to be looked at before the next attempt. Where others
// wrote, that is no error: the next attempt knows.
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

// written tells the instance that its end is known.
func (w *writer) written(s fleet.Status) {
	if s.State.Terminal() {
		w.tell(s.Instance, machine.Settled{Generation: s.Generation})
	}
}

// look reads the record an item is to replace and decides whether it needs to be. A record
// that stands is read again for each later status of the instance: it is not to be replaced.
func (w *writer) look(ctx context.Context, it *item) error {
	if it.read {
		return nil
	}
	have, err := store.Get(ctx, w.store, store.StatusKey(it.status.Instance))
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	it.read, it.rev = true, have.ModRev
	switch want := it.status; {
	case it.last && have.ModRev == 0:
		it.done = true
	case have.ModRev == 0 || have.Generation < want.Generation:
	case have.Generation > want.Generation: // the instance went on elsewhere
		it.done, it.read = true, false
		w.tell(want.Instance, machine.Superseded{Generation: want.Generation})
	case have.State.Terminal():
		it.done, it.read = true, false
		if want.State.Terminal() {
			w.written(want)
			break
		}
		w.tell(want.Instance, machine.Superseded{Generation: want.Generation})
	case equal(have, want):
		it.done = true
	}
	return nil
}

// equal reports whether a record tells everything that matters of a status: a new
// session alone is no reason to write it again.
func equal(have, want fleet.Status) bool {
	return have.State == want.State && have.Node == want.Node && have.PID == want.PID && have.Restarts == want.Restarts &&
		have.HostAddress == want.HostAddress && have.TokenHash == want.TokenHash && reflect.DeepEqual(have.Exit, want.Exit)
}

// watchDoubts tells instances whose crash could not be written for a while.
func (w *writer) watchDoubts(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.doubt:
		}
		for next := w.doubts(); !next.IsZero() && ctx.Err() == nil; next = w.doubts() {
			pause.For(ctx, time.Until(next))
		}
	}
}

// doubts tells those whose time has come and returns when the next one's will have.
func (w *writer) doubts() (next time.Time) {
	now := time.Now()
	var stuck []fleet.Status
	w.mu.Lock()
	for _, sl := range w.slots {
		if !sl.dirty || sl.told || sl.want.State != fleet.Crashed {
			continue
		}
		if due := sl.since.Add(doubtAfter); due.After(now) {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		sl.told = true
		stuck = append(stuck, sl.want)
	}
	w.mu.Unlock()
	for _, s := range stuck {
		w.tell(s.Instance, machine.Unsettled{Generation: s.Generation})
	}
	return next
}
