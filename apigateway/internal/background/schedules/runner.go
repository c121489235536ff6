// Package schedules runs schedules and overlays.
//
//	schedules/, schedule-states/, sessions/, instances/ ─┬─changed, or due──▶ timetable ──▶ schedule-states/ ──▶ act
//	overlays/, active-overlays/                         ─┘                         └──────▶ active-overlays/
//
// Every gateway does this. All wake up when a schedule is due, and the comparisons of the write choose
// the one that acts. Writes are fenced by the gateway's session, so a gateway that was paused past its
// lease writes nothing.
package schedules

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/apigateway/internal/ops/scheduleops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/scheduleops/timetable"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/cron"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
	"github.com/orreryhq/orrery/libs/reconcile"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
)

const (
	// overlays is the queue's key for all overlays. No schedule has an empty name.
	overlays = ""
	// workers is the number of schedules that a gateway works on at once.
	workers = 4
	// together is the number of instances of a step that a gateway acts on at once.
	together = 8
	// actTimeout bounds the action on one instance, and backupTimeout that of a backup.
	actTimeout, backupTimeout = 15 * time.Second, 12 * time.Hour
	// recordTimeout bounds writing the outcome of an action, also when the gateway ends.
	recordTimeout = 10 * time.Second
	// longest is the longest wait. A wall clock that was set meanwhile is noticed after it.
	longest = time.Hour
	// resync is how often all schedules are looked at again, in case a change was missed.
	resync = time.Hour
)

// Config has what a Runner needs. All fields are required.
type Config struct {
	Store      *store.Client
	View       *view.View
	Operations *scheduleops.Schedules
	// Service and Replica name the gateway's session.
	Service, Replica string
	Log              *slog.Logger
	Metrics          *telemetry.Metrics
	Now              func() time.Time
}

// Runner runs schedules and overlays. Create it with New.
type Runner struct {
	cfg   Config
	queue *reconcile.Queue[string]
	runs  *prometheus.CounterVec

	mu sync.Mutex
	// watched is since when this gateway watches a restarted instance.
	watched map[watch]time.Time
	// acting are the schedules whose backups this gateway makes, with the number of the run. They do not hold
	// up other schedules.
	acting map[string]int64
	long   sync.WaitGroup
}

// watch is a restart of an instance by a run.
type watch struct {
	schedule string
	run      int64
	instance fleet.InstanceID
}

// New returns a Runner. Subscribe its OnBatch to the view.
func New(cfg Config) *Runner {
	r := &Runner{
		cfg: cfg, watched: map[watch]time.Time{}, acting: map[string]int64{},
		runs: cfg.Metrics.Counter("schedule_runs", "Runs of schedules that this gateway ended, by result.", "result"),
	}
	for _, result := range schedule.Results() {
		r.runs.WithLabelValues(string(result))
	}
	r.queue = reconcile.New(reconcile.Options[string]{
		Name: "schedules", Reconcile: r.reconcile, Workers: workers, Backoff: reconcile.Backoff{Base: 100 * time.Millisecond, Max: time.Minute},
		Resync: resync, Keys: func() iter.Seq[string] { return names(cfg.View.Snapshot()) },
		Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Log: cfg.Log,
	})
	return r
}

// Run works until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	for name := range names(r.cfg.View.Snapshot()) {
		r.queue.Add(name)
	}
	_ = r.queue.Run(ctx) // ends with ctx
	r.long.Wait()
}

// names yields all keys of the queue.
func names(s *view.Snapshot) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(overlays) {
			return
		}
		for name := range s.Schedules.All() {
			if !yield(name) {
				return
			}
		}
	}
}

// OnBatch queues what a batch may let proceed.
func (r *Runner) OnBatch(b view.Batch) {
	var groups map[fleet.GroupName]bool
	sessions := false
	for i := range b.Changes {
		switch c := &b.Changes[i]; c.Kind {
		case view.KindSchedule, view.KindScheduleState:
			r.queue.Add(c.Key[0])
		case view.KindOverlay, view.KindActiveOverlay:
			r.queue.Add(overlays)
		case view.KindSession:
			sessions = sessions || c.Key[0] == r.cfg.Service
		case view.KindIntent, view.KindStatus, view.KindPlacement, view.KindDeployment, view.KindProgress:
			if groups == nil {
				groups = map[fleet.GroupName]bool{}
			}
			groups[c.Group()] = true
		default: // no schedule depends on it
		}
	}
	if sessions {
		for name := range names(b.After) {
			r.queue.Add(name)
		}
	}
	if len(groups) == 0 {
		return
	}
	for name, st := range b.After.ScheduleStates.All() {
		if st.Current != nil && (groups[st.Current.Group] || groups[groupOf(b, st.Current.Instance)]) {
			r.queue.Add(name)
		}
	}
}

// groupOf returns the group of the instance that has a name, or had it before the batch.
func groupOf(b view.Batch, instance string) fleet.GroupName {
	for _, s := range []*view.Snapshot{b.After, b.Before} {
		if i, ok := s.ByName(instance); ok {
			return i.Intent.Group
		}
	}
	g, _, _ := fleet.ParseInstanceName(instance)
	return g
}

// reconcile takes the next step of a schedule, or of the overlays.
func (r *Runner) reconcile(ctx context.Context, name string) (reconcile.Result, error) {
	self, ok := r.session(r.cfg.View.Snapshot())
	if !ok {
		return reconcile.Result{}, nil // the change of the session leads here again
	}
	if name == overlays {
		return r.switchOverlays(ctx, self)
	}
	s := r.cfg.View.Snapshot()
	sched, ok := s.Schedules.Get(name)
	if !ok {
		return reconcile.Result{}, nil
	}
	times, err := cron.Parse(sched.Cron, sched.Timezone)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.cfg.Now().UTC()
	in := scheduleops.Look(s)
	in.Schedule, in.State, in.Times, in.Now, in.Self = sched, scheduleops.StateOf(s, name), times, now, self
	in.By = scheduleops.Actor(name)
	in.Alive = func(h schedule.Holder) bool {
		session, ok := s.Sessions.Get(r.cfg.Service + "/" + h.Replica)
		return ok && session.CreateRev == h.Epoch
	}
	r.mu.Lock()
	in.Acting = in.State.Current != nil && r.acting[name] == in.State.Current.Number
	r.mu.Unlock()
	in.Watched = func(id fleet.InstanceID) time.Duration { return r.watch(in.State, id) }
	d := timetable.Decide(in)
	if !d.Changed {
		return reconcile.Result{After: until(d.Wake, now)}, nil
	}
	if err := r.write(ctx, sched, self, d.State, in.State.ModRev); err != nil || len(d.Do) == 0 {
		if err == nil {
			r.ended(name, d.Ended)
		}
		return reconcile.Result{After: until(d.Wake, now)}, ignoreLost(err)
	}
	r.ended(name, d.Ended)
	if current(d.State.Current).Action == schedule.Backup {
		r.actLong(ctx, sched, self, d)
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, r.act(ctx, sched, self, d)
}

// actLong is act in the background.
func (r *Runner) actLong(ctx context.Context, sched *schedule.Schedule, self schedule.Holder, d timetable.Decision) {
	r.mu.Lock()
	number := d.State.Current.Number
	r.acting[sched.Name] = number
	r.mu.Unlock()
	r.long.Go(func() {
		err := r.act(ctx, sched, self, d)
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Error("cannot record the outcome of a backup", "schedule", sched.Name, "error", err)
		}
		r.mu.Lock()
		if r.acting[sched.Name] == number {
			delete(r.acting, sched.Name)
		}
		r.mu.Unlock()
		r.queue.Add(sched.Name)
	})
}

// session returns this gateway in its present session.
func (r *Runner) session(s *view.Snapshot) (schedule.Holder, bool) {
	session, ok := s.Sessions.Get(r.cfg.Service + "/" + r.cfg.Replica)
	if !ok {
		return schedule.Holder{}, false
	}
	return schedule.Holder{Replica: r.cfg.Replica, Epoch: session.CreateRev}, true
}

func (r *Runner) fence(self schedule.Holder) store.Fence {
	return store.FenceOf(keys.Session(r.cfg.Service, self.Replica), self.Epoch)
}

// write stores a state, provided that the schedule is unchanged, and waits until the view shows it.
func (r *Runner) write(ctx context.Context, sched *schedule.Schedule, self schedule.Holder, next schedule.State, modRev int64) error {
	return txn.InTime(ctx, func(ctx context.Context) error {
		rev, err := r.cfg.Store.Commit(ctx, store.Txn{
			Fences: []store.Fence{r.fence(self)},
			Guards: []store.Guard{store.Unchanged(keys.Schedule(sched.Name), sched.ModRev)},
			Writes: []store.Write{store.Replace(keys.ScheduleState(sched.Name), next, modRev)},
		})
		if err != nil {
			return err
		}
		_, err = r.cfg.View.WaitRev(ctx, rev)
		return err
	})
}

// ignoreLost returns nil for an error of a comparison: the change that won leads here again.
func ignoreLost(err error) error {
	if store.Lost(err) != nil {
		return nil
	}
	return err
}

// act carries out a decision that was written, and stores the outcome.
func (r *Runner) act(ctx context.Context, sched *schedule.Schedule, self schedule.Holder, d timetable.Decision) error {
	run := d.State.Current
	step := current(run)
	done, failed := make([]string, len(d.Do)), make([]string, len(d.Do))
	limit := actTimeout
	if step.Action == schedule.Backup {
		limit = backupTimeout
	}
	var all errgroup.Group
	all.SetLimit(together)
	for k, at := range d.Do {
		all.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			text, err := r.cfg.Operations.Act(ctx, sched.Name, step, step.Targets[at])
			if err != nil {
				failed[k] = cmp.Or(txn.Clip(errs.MessageOf(err)), "failed")
			}
			done[k] = txn.Clip(text)
			return nil
		})
	}
	_ = all.Wait() // no function returns an error
	if step.Action == schedule.Backup && ctx.Err() != nil {
		return nil // the backups continue: another gateway records that their outcome is unknown
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	return txn.RetryConflicts(func() error {
		s := r.cfg.View.Snapshot()
		stored, known := s.Schedules.Get(sched.Name)
		now := scheduleops.StateOf(s, sched.Name)
		next, ok := timetable.Done(now, *run, d.Do, done, failed)
		if !known || !ok {
			return nil // the schedule was deleted
		}
		return r.write(ctx, stored, self, next, now.ModRev)
	})
}

// current returns the step in progress.
func current(run *schedule.Run) schedule.Step {
	for _, step := range run.Steps {
		if !step.Begun.IsZero() && step.Ended.IsZero() {
			return step
		}
	}
	return schedule.Step{}
}

// ended counts and logs runs that have ended, and forgets what was watched for them.
func (r *Runner) ended(name string, runs []schedule.Run) {
	for _, run := range runs {
		r.runs.WithLabelValues(string(run.Result)).Inc()
		if run.Result != schedule.Completed {
			r.cfg.Log.Warn("a scheduled action did not complete", "schedule", name, "run", run.Number, "result", run.Result, "message", run.Message)
		}
	}
	if len(runs) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.watched {
		if w.schedule == name {
			delete(r.watched, w)
		}
	}
}

// watch returns how long this gateway has watched an instance that the current run restarts.
func (r *Runner) watch(st schedule.State, id fleet.InstanceID) time.Duration {
	w := watch{st.Name, st.Current.Number, id}
	r.mu.Lock()
	defer r.mu.Unlock()
	since, ok := r.watched[w]
	if !ok {
		for old := range r.watched { // another gateway may have ended an earlier run
			if old.schedule == w.schedule && old.run != w.run {
				delete(r.watched, old)
			}
		}
		since = time.Now()
		r.watched[w] = since
	}
	return time.Since(since)
}

// until returns how long to wait until a time, 0 for the zero time.
func until(wake, now time.Time) time.Duration {
	if wake.IsZero() {
		return 0
	}
	return max(min(wake.Sub(now), longest), time.Millisecond)
}

// switchOverlays begins and ends overlays.
func (r *Runner) switchOverlays(ctx context.Context, self schedule.Holder) (reconcile.Result, error) {
	s := r.cfg.View.Snapshot()
	all := make([]*schedule.Overlay, 0, s.Overlays.Len())
	for _, o := range s.Overlays.All() {
		all = append(all, o)
	}
	before, now := s.ActiveOverlays(), r.cfg.Now().UTC()
	after, wake := timetable.Overlays(all, before, scheduleops.TimesOf, now)
	result := reconcile.Result{After: until(wake, now)}
	if timetable.SameActive(before, after) {
		return result, nil
	}
	guards := make([]store.Guard, 0, len(after.Overlays))
	for _, o := range after.Overlays {
		guards = append(guards, store.Unchanged(keys.Overlay(o.Name), o.Revision))
	}
	err := txn.InTime(ctx, func(ctx context.Context) error {
		rev, err := r.cfg.Store.Commit(ctx, store.Txn{
			Fences: []store.Fence{r.fence(self)}, Guards: guards,
			Writes: []store.Write{store.Replace(keys.ActiveOverlays(), after, before.ModRev)},
		})
		if err != nil {
			return err
		}
		_, err = r.cfg.View.WaitRev(ctx, rev)
		return err
	})
	return result, ignoreLost(err)
}
