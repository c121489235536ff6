// Package notices delivers outgoing notices.
//
//	events log, etcd history ──follow──▶ queue ──send, retry──▶ target
//	                                              └──result──▶ notice-states/
//
// One gateway delivers each notice: the holder in its state. When the session of the holder ends, the
// comparisons of a write choose the next one, which continues at the position in the state. Positions are
// written after the deliveries, so an event is sent again after a failover, with the same delivery ID.
//
// Each notice has its own goroutines, queue and pauses, so a target that hangs delays no other notice.
package notices

import (
	"context"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/apigateway/internal/background/notices/webhook"
	"github.com/orreryhq/orrery/apigateway/internal/ops/noticeops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/fleet/notice"
	"github.com/orreryhq/orrery/libs/reconcile"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
)

const (
	// workers is the number of notices that a gateway starts or stops at once.
	workers = 4
	// resync is how often all notices are looked at again, in case a change was missed.
	resync = time.Hour
)

// Config has what a Runner needs. All fields are required unless their comment says otherwise.
type Config struct {
	Store      *store.Client
	View       *view.View
	Operations *noticeops.Notices
	Events     *events.Source
	Egress     egress.Policy
	// Cluster is the cluster's name in messages.
	Cluster string
	// Service and Replica name the gateway's session.
	Service, Replica string
	// Retries bound the attempts. The zero value means webhook.DefaultRetries.
	Retries webhook.Retries
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	Now     func() time.Time
}

// Runner delivers the notices that this gateway holds. Create it with New.
type Runner struct {
	cfg    Config
	queue  *reconcile.Queue[string]
	sender *webhook.Sender
	counts *prometheus.CounterVec

	mu sync.Mutex
	// running are the notices that this gateway delivers, by name.
	running map[string]*worker
}

// The results that are counted, of events and, for retried, of attempts.
const (
	delivered = "delivered"
	retried   = "retried"
	failed    = "failed"
	dropped   = "dropped"
)

// New returns a Runner. Subscribe its OnBatch to the view.
func New(cfg Config) *Runner {
	if cfg.Retries.Attempts == 0 {
		cfg.Retries = webhook.DefaultRetries()
	}
	r := &Runner{
		cfg: cfg, sender: webhook.NewSender(cfg.Egress), running: map[string]*worker{},
		counts: cfg.Metrics.Counter("notice_events", "Events of notices by result: delivered, failed, dropped from a full queue, or retried for each attempt that is repeated.", "result"),
	}
	for _, result := range []string{delivered, retried, failed, dropped} {
		r.counts.WithLabelValues(result)
	}
	cfg.Metrics.GaugeFunc("notice", "waiting", "Events that wait in the queues of notices that this gateway delivers.", r.waiting)
	r.queue = reconcile.New(reconcile.Options[string]{
		Name: "notices", Reconcile: r.reconcile, Workers: workers, Backoff: reconcile.Backoff{Base: 100 * time.Millisecond, Max: time.Minute},
		Resync: resync, Keys: func() iter.Seq[string] { return r.names(cfg.View.Snapshot()) },
		Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Log: cfg.Log,
	})
	return r
}

// Run works until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	for name := range r.names(r.cfg.View.Snapshot()) {
		r.queue.Add(name)
	}
	_ = r.queue.Run(ctx) // ends with ctx
	// Together the workers have one recordTimeout, also while etcd does not answer.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, w := range r.workers() {
		all.Go(func() { w.stop(limited) })
	}
	all.Wait()
	r.sender.Close()
}

// names yields the names of the notices, and of those that are still delivered.
func (r *Runner) names(s *view.Snapshot) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range s.Notices.All() {
			if !yield(name) {
				return
			}
		}
		for _, w := range r.workers() {
			if !yield(w.notice.Name) {
				return
			}
		}
	}
}

// OnBatch queues the notices that a batch may concern.
func (r *Runner) OnBatch(b view.Batch) {
	for i := range b.Changes {
		switch c := &b.Changes[i]; c.Kind {
		case view.KindNotice, view.KindNoticeState:
			r.queue.Add(c.Key[0])
		case view.KindSession:
			if c.Key[0] == r.cfg.Service {
				for name := range r.names(b.After) {
					r.queue.Add(name)
				}
			}
		default: // no delivery depends on it
		}
	}
}

// holder returns this gateway in its present session.
func (r *Runner) holder(s *view.Snapshot) (notice.Holder, bool) {
	session, ok := s.Sessions.Get(r.cfg.Service + "/" + r.cfg.Replica)
	if !ok {
		return notice.Holder{}, false
	}
	return notice.Holder{Replica: r.cfg.Replica, Epoch: session.CreateRev}, true
}

// alive reports whether the session of a holder exists.
func (r *Runner) alive(s *view.Snapshot, h notice.Holder) bool {
	session, ok := s.Sessions.Get(r.cfg.Service + "/" + h.Replica)
	return ok && session.CreateRev == h.Epoch
}

// reconcile starts or stops the delivery of a notice.
func (r *Runner) reconcile(ctx context.Context, name string) (reconcile.Result, error) {
	s := r.cfg.View.Snapshot()
	n, known := s.Notices.Get(name)
	self, live := r.holder(s)
	wanted := known && n.Enabled && live
	if w := r.worker(name); w != nil {
		st, _ := s.NoticeStates.Get(name)
		if wanted && !w.over.Load() && w.notice.ModRev == n.ModRev && w.self == self && st != nil && st.Holder == self {
			return reconcile.Result{}, nil
		}
		rev := w.stop(context.WithoutCancel(ctx))
		r.remember(name, nil)
		var err error
		if s, err = r.cfg.View.WaitRev(ctx, rev); err != nil {
			return reconcile.Result{}, err
		}
		if n, known = s.Notices.Get(name); known {
			self, live = r.holder(s)
		}
		wanted = known && n.Enabled && live
	}
	if !wanted {
		return reconcile.Result{}, nil
	}
	st := notice.State{Name: name}
	if stored, ok := s.NoticeStates.Get(name); ok {
		st = *stored
	}
	if st.Holder != self && r.alive(s, st.Holder) {
		return reconcile.Result{}, nil // the end of its session leads here again
	}
	return reconcile.Result{}, r.start(ctx, n, st, self)
}

// start claims a notice and delivers it. It does nothing if another gateway was faster.
func (r *Runner) start(ctx context.Context, n *notice.Notice, st notice.State, self notice.Holder) error {
	target, err := r.cfg.Operations.Target(n)
	if err != nil {
		return err
	}
	from, ok := events.ParsePosition(st.Position)
	switch {
	case st.ModRev == 0:
		from = events.Position{Rev: n.CreateRev}
	case !ok: // the notice was turned on by this write
		from = events.Position{Rev: n.ModRev}
	}
	st.Holder, st.Position, st.Waiting = self, from.String(), 0
	err = txn.InTime(ctx, func(ctx context.Context) error {
		rev, err := r.cfg.Store.Commit(ctx, store.Txn{
			Fences: []store.Fence{store.FenceOf(keys.Session(r.cfg.Service, self.Replica), self.Epoch)},
			Guards: []store.Guard{store.Unchanged(keys.Notice(n.Name), n.ModRev)},
			Writes: []store.Write{store.Replace(keys.NoticeState(n.Name), st, st.ModRev)},
		})
		if err != nil {
			return err
		}
		st.ModRev = rev
		_, err = r.cfg.View.WaitRev(ctx, rev)
		return err
	})
	switch {
	case store.Lost(err) != nil:
		return nil // the change that won leads here again
	case err != nil:
		return err
	}
	r.remember(n.Name, r.newWorker(ctx, n, target, st, from))
	return nil
}

func (r *Runner) worker(name string) *worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[name]
}

// remember sets the worker of a notice. Nil removes it.
func (r *Runner) remember(name string, w *worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w == nil {
		delete(r.running, name)
		return
	}
	r.running[name] = w
}

func (r *Runner) workers() []*worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*worker, 0, len(r.running))
	for _, w := range r.running {
		all = append(all, w)
	}
	return all
}

func (r *Runner) waiting() float64 {
	n := 0
	for _, w := range r.workers() {
		n += w.waiting()
	}
	return float64(n)
}

// Test sends a test message to the target of a notice, once.
func (r *Runner) Test(ctx context.Context, n *notice.Notice, m webhook.Message) (webhook.Result, error) {
	target, err := r.cfg.Operations.Target(n)
	if err != nil {
		return webhook.Result{}, err
	}
	return r.sender.Send(ctx, target, n.Format, m, r.cfg.Now()), nil
}

// TestMessage returns the message of a test. id makes it differ from others.
func (r *Runner) TestMessage(n *notice.Notice, id string) webhook.Message {
	return webhook.Message{Notice: n.Name, Cluster: r.cfg.Cluster, Event: webhook.Event{ID: "test-" + id, Type: webhook.Test}}
}
