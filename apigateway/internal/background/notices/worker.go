package notices

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/background/notices/webhook"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/fleet/notice"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	// recordEvery is the shortest time between two writes of a notice's state.
	recordEvery = 2 * time.Second
	// recordTimeout bounds one write, also when the gateway ends.
	recordTimeout = 5 * time.Second
	// freshEvery is how often the position is written without events. It is well below the time for which
	// etcd keeps its history, so that a failover finds the events.
	freshEvery = 3 * time.Minute
	// readPause is the pause after the history could not be read.
	readPause = time.Second
)

// worker delivers one notice.
type worker struct {
	r        *Runner
	notice   *notice.Notice
	target   notice.Target
	self     notice.Holder
	follower *events.Follower

	cancel context.CancelFunc
	all    sync.WaitGroup
	// over is true once the worker ends.
	over atomic.Bool
	// ready wakes the sender, changed the recorder. Each has a value until it is received.
	ready, changed chan struct{}

	mu    sync.Mutex
	queue queue
	// state is the state as it is to be written. Its revision is that of the last write.
	state notice.State
}

// newWorker starts to deliver a notice whose state was claimed. The caller stops it.
func (r *Runner) newWorker(ctx context.Context, n *notice.Notice, target notice.Target, st notice.State, from events.Position) *worker {
	w := &worker{
		r: r, notice: n, target: target, self: st.Holder, state: st, queue: queue{read: from, done: from},
		ready: make(chan struct{}, 1), changed: make(chan struct{}, 1),
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = func() { w.over.Store(true); cancel() }
	w.follower = r.cfg.Events.Follow(from, w.wants)
	w.all.Go(func() { w.read(ctx) })
	w.all.Go(func() { w.send(ctx) })
	w.all.Go(func() { w.record(ctx) })
	return w
}

// stop ends the delivery. A request in progress is cut, and its event is sent again later. It returns the
// revision of the last state that was written. The last write ends with ctx.
func (w *worker) stop(ctx context.Context) int64 {
	w.cancel()
	w.all.Wait()
	w.follower.Close()
	select {
	case <-w.changed:
		w.write(ctx)
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.ModRev
}

func (w *worker) wants(e events.Event) bool {
	return w.notice.Wants(string(e.Type), webhook.SeverityOf(string(e.Type), e.Fields), e.Group, e.From)
}

// read queues the events.
func (w *worker) read(ctx context.Context) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, freshEvery)
		part, err := w.follower.Next(limited)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				w.r.cfg.Log.Warn("the events of a notice cannot be read, trying again", "notice", w.notice.Name, "error", err)
			}
			pause.For(ctx, readPause)
			continue
		}
		if part.Lost {
			part.Events = []events.Event{{Type: events.ResyncRequired, At: part.UpTo, Fields: events.Fields{"latestSequence": part.UpTo.Rev}}}
			w.r.cfg.Log.Warn("a notice missed events, because their history no longer exists", "notice", w.notice.Name)
		}
		w.take(part)
	}
}

// take adds a part to the queue.
func (w *worker) take(part events.Part) {
	w.mu.Lock()
	before := w.queue.done
	n := w.queue.add(part.Events, part.UpTo)
	w.state.Dropped += int64(n)
	moved := w.queue.done != before || len(part.Events) > 0
	w.mu.Unlock()
	w.r.counts.WithLabelValues(dropped).Add(float64(n))
	if moved {
		signal(w.changed)
	}
	if len(part.Events) > 0 {
		signal(w.ready)
	}
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func (w *worker) first() (events.Event, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.first()
}

func (w *worker) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue.waiting)
}

// send sends the queued events one after the other.
func (w *worker) send(ctx context.Context) {
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for ctx.Err() == nil {
		e, ok := w.first()
		if !ok || !w.current() {
			select {
			case <-w.ready:
			case <-ctx.Done():
			}
			continue
		}
		w.deliver(ctx, e, random)
	}
}

// current reports whether the notice is unchanged. A notice that was changed, turned off or deleted sends
// nothing more, and its worker is stopped soon.
func (w *worker) current() bool {
	n, ok := w.r.cfg.View.Snapshot().Notices.Get(w.notice.Name)
	return ok && n.ModRev == w.notice.ModRev
}

// deliver sends an event until it is done or the notice changes.
func (w *worker) deliver(ctx context.Context, e events.Event, random *rand.Rand) {
	m := webhook.Message{
		Notice: w.notice.Name, Cluster: w.r.cfg.Cluster,
		Event: webhook.Event{ID: e.At.String(), Type: string(e.Type), Group: e.Group, Fields: e.Fields},
	}
	for attempt := 1; w.current(); attempt++ {
		result := w.r.sender.Send(ctx, w.target, w.notice.Format, m, w.r.cfg.Now())
		if ctx.Err() != nil && !result.OK() {
			return // it was cut, which says nothing about the target
		}
		v := w.note(m, result, attempt, random)
		if !pause.For(ctx, v.Wait) || v.Done {
			return
		}
	}
}

// note takes the result of an attempt into the state.
func (w *worker) note(m webhook.Message, result webhook.Result, attempt int, random *rand.Rand) webhook.Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer signal(w.changed)
	now, st, count := w.r.cfg.Now().UTC(), &w.state, retried
	st.LastAttempt, st.LastEvent, st.LastStatus = now, m.Event.Type, result.Status
	st.LastError = validate.ClipMessage(result.Error, notice.MaxError)
	if result.OK() {
		st.LastSuccess, st.Failures, st.FailingSince = now, 0, time.Time{}
	} else if st.Failures++; st.Failures == 1 {
		st.FailingSince = now
	}
	v := w.r.cfg.Retries.Judge(result, attempt, st.Failures, random)
	switch {
	case v.Done && result.OK():
		st.Delivered++
		count = delivered
	case v.Done:
		st.Failed++
		count = failed
		w.r.cfg.Log.Warn("a notice was not delivered and is given up", "notice", w.notice.Name, "event", m.Event.ID, "type", m.Event.Type, "attempts", attempt, "error", result.Error)
	}
	if v.Done {
		w.queue.pop()
	}
	w.r.counts.WithLabelValues(count).Inc()
	return v
}

// record writes the state when it has changed.
func (w *worker) record(ctx context.Context) {
	for {
		select {
		case <-w.changed:
		case <-ctx.Done():
			return
		}
		w.write(context.WithoutCancel(ctx))
		if !pause.For(ctx, recordEvery) {
			return
		}
	}
}

// write stores the state. If another gateway or a user has changed it, the worker ends.
func (w *worker) write(ctx context.Context) {
	w.mu.Lock()
	st := w.state
	st.Position, st.Waiting = w.queue.done.String(), len(w.queue.waiting)
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	rev, err := w.r.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(keys.NoticeState(w.notice.Name), st, st.ModRev)}})
	switch {
	case err == nil:
		w.mu.Lock()
		w.state.ModRev = rev
		w.mu.Unlock()
	case store.Lost(err) != nil:
		w.cancel()
		w.r.queue.Add(w.notice.Name)
	default:
		w.r.cfg.Log.Warn("the state of a notice was not written, trying again", "notice", w.notice.Name, "error", err)
		signal(w.changed)
	}
}
