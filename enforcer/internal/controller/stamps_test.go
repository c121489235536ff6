package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store/view"
)

// skewed is a group with one instance as an enforcer sees it. The clocks of the enforcer,
// the node and the gateway are each off by some time from the true time.
type skewed struct {
	t                       *testing.T
	enforcer, node, gateway time.Duration
	stamps                  *stamps
	rev                     int64
	group                   *fleet.Group
	instance                *fleet.Instance
	session                 *fleet.NodeSession
	drained                 *fleet.NodeDesired
	plan                    fleet.Plan
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func newSkewed(t *testing.T, enforcer, host, gateway time.Duration) *skewed {
	w := &skewed{t: t, enforcer: enforcer, node: host, gateway: gateway, stamps: newStamps()}
	w.batch(0) // the first list is empty
	made := noon.Add(gateway)
	w.group = &fleet.Group{Name: "lobby", Revision: 1, CreatedAt: made, UpdatedAt: made, Spec: fleet.DefaultSpec()}
	w.plan = compose.Compose(*w.group, compose.Materials{}, 0)
	w.batch(0, view.Change{Kind: view.KindGroup, Key: []string{"lobby"}, After: w.group})
	w.session = &fleet.NodeSession{Node: node, StartedAt: noon.Add(host)}
	w.batch(0, view.Change{Kind: view.KindSession, Key: []string{"node", string(node)}, After: w.session})
	w.instance = &fleet.Instance{
		Intent: fleet.Intent{
			ID: "aaaaaa", Group: "lobby", Ordinal: 1, Name: "lobby-1", Plan: "plan", GroupRevision: 1, Generation: 1, GenerationAt: made, CreatedAt: made,
			Desired: fleet.DesiredRunning, Origin: fleet.OriginManual,
		},
		Placement: &fleet.Placement{Instance: "aaaaaa", Group: "lobby", Node: node, Generation: 1, Plan: "plan", PlacedAt: made},
	}
	w.batch(0, view.Change{Kind: view.KindIntent, Key: []string{"aaaaaa"}, After: &w.instance.Intent},
		view.Change{Kind: view.KindPlacement, Key: []string{string(node), "aaaaaa"}, After: w.instance.Placement})
	return w
}

// batch makes the enforcer see changes at a true time after noon.
func (w *skewed) batch(after time.Duration, changes ...view.Change) {
	w.rev++
	w.stamps.heard(&view.Batch{After: &view.Snapshot{Rev: w.rev}, Changes: changes}, noon.Add(after+w.enforcer))
}

// status makes the node write a status at a true time after noon, which the enforcer sees
// at once.
func (w *skewed) status(after time.Duration, state fleet.State, why fleet.Reason, crashes ...time.Duration) {
	at := noon.Add(after + w.node)
	s := &fleet.Status{Instance: "aaaaaa", Group: "lobby", Node: node, Generation: 1, State: state, Reason: why, ChangedAt: at}
	if state.Terminal() {
		s.FinishedAt = at
	}
	for _, c := range crashes {
		s.Crashes = append(s.Crashes, noon.Add(c+w.node))
	}
	ch := view.Change{Kind: view.KindStatus, Key: []string{"aaaaaa"}, After: s}
	if w.instance.Status != nil {
		ch.Before = w.instance.Status
	}
	w.instance.Status = s
	w.batch(after, ch)
}

// drain makes the gateway drain the node at a true time after noon.
func (w *skewed) drain(after, timeout time.Duration) {
	w.drained = &fleet.NodeDesired{Node: node, Cordoned: true, Drain: &fleet.NodeDrain{ID: "d", At: noon.Add(after + w.gateway), TimeoutSeconds: int(timeout.Seconds())}}
	w.batch(after, view.Change{Kind: view.KindNodeDesired, Key: []string{string(node)}, After: w.drained})
}

// planned returns what the enforcer does at a true time after noon, and when it plans
// again.
func (w *skewed) planned(after time.Duration) string {
	now := noon.Add(after + w.enforcer)
	actions, wake := plan.Group(plan.Input{
		Group: w.stamps.group(w.group, now), Instances: []*fleet.Instance{w.stamps.instance(w.instance, now)}, Limits: plan.DefaultLimits(),
		Session:     func(fleet.NodeID) *fleet.NodeSession { return w.stamps.session(w.session, now) },
		Drain:       func(fleet.NodeID) *fleet.NodeDrain { return w.stamps.drain(w.drained, now) },
		Move:        func(fleet.InstanceID) (*move.Move, *move.Copy) { return nil, nil },
		Figures:     func(*fleet.Instance) reports.InstanceReport { return reports.InstanceReport{} },
		EmptySince:  func(*fleet.Instance) time.Time { return time.Time{} },
		Plan:        func(string) *fleet.Plan { return &w.plan },
		LostSince:   func(fleet.NodeID) time.Time { return time.Time{} },
		Republished: func(string) bool { return false },
		Eviction:    func(fleet.InstanceID) *fleet.Eviction { return nil },
		Players:     func(*fleet.Instance) int { return 0 },
		Crashes:     func(func(*reports.Crash) bool) {},
		Elsewhere:   func(fleet.NodeID) bool { return false },
	}, now)
	out := ""
	for _, a := range actions {
		out += fmt.Sprintf("%s %s %s %v;", a.Kind, a.Order, a.Reason, a.Loop.PausedUntil.Sub(a.Loop.PausedAt))
	}
	if wake.IsZero() {
		return out
	}
	return out + fmt.Sprintf(" again in %v", wake.Sub(now))
}

func TestNoClockDecidesWhatIsDone(t *testing.T) {
	t.Parallel()
	tests := []struct {
		rule string
		do   func(*skewed)
		at   time.Duration
		want string
	}{
		{"an instance that starts in time is left alone", func(w *skewed) {
			w.status(time.Minute, fleet.Starting, fleet.ReasonProcessStarted)
		}, 90 * time.Second, " again in 1m45s"},
		{"one that starts for too long is killed", func(w *skewed) {
			w.status(time.Minute, fleet.Starting, fleet.ReasonProcessStarted)
		}, 4 * time.Minute, "order kill DeadlinePassed 0s;"},
		{"a crash is healed at once", func(w *skewed) {
			w.status(time.Minute, fleet.Crashed, fleet.ReasonExited)
		}, time.Minute, "create  Replacement 0s;"},
		{"a second one after a second", func(w *skewed) {
			w.status(time.Minute, fleet.Crashed, fleet.ReasonExited, 50*time.Second)
		}, time.Minute, " again in 1s"},
		{"and not later", func(w *skewed) {
			w.status(time.Minute, fleet.Crashed, fleet.ReasonExited, 50*time.Second)
		}, time.Minute + time.Second, "create  Replacement 0s;"},
		{"and not later, when the node's clock is set back before it reports", func(w *skewed) {
			w.status(time.Minute, fleet.Crashed, fleet.ReasonExited, 50*time.Second+5*time.Hour)
			w.instance.Status.FinishedAt = w.instance.Status.FinishedAt.Add(5 * time.Hour)
		}, time.Minute + time.Second, "create  Replacement 0s;"},
		{"three pause the group", func(w *skewed) {
			w.status(time.Minute, fleet.Crashed, fleet.ReasonExited, 50*time.Second, 55*time.Second)
		}, time.Minute, "set_crash_loop  CrashLoop 1m0s; again in 1m0s"},
		{"three within the window alone", func(w *skewed) {
			w.status(10*time.Minute, fleet.Crashed, fleet.ReasonExited, time.Minute, 2*time.Minute)
		}, 10 * time.Minute, "create  Replacement 0s;"},
		{"an instance of a draining node keeps its players until the timeout", func(w *skewed) {
			w.status(time.Minute, fleet.Online, fleet.ReasonReady)
			w.drain(2*time.Minute, time.Minute)
		}, 3*time.Minute - time.Second, "retire  NodeDrained 0s; again in 1s"},
		{"and not longer", func(w *skewed) {
			w.status(time.Minute, fleet.Online, fleet.ReasonReady)
			w.drain(2*time.Minute, time.Minute)
		}, 3 * time.Minute, "stop stop NodeDrained 0s;"},
		{"want of something the group does not bring is tried again after ten seconds", func(w *skewed) {
			w.status(time.Minute, fleet.Failed, fleet.ReasonTemplateMissing)
		}, time.Minute, " again in 10s"},
	}
	skews := []time.Duration{0, 140 * time.Second, -140 * time.Second, 12 * time.Hour, -12 * time.Hour}
	for _, tt := range tests {
		for _, enforcer := range skews {
			for _, host := range skews {
				for _, gateway := range skews {
					w := newSkewed(t, enforcer, host, gateway)
					tt.do(w)
					if got := w.planned(tt.at); got != tt.want {
						t.Errorf("%s; enforcer %v, node %v, gateway %v: %q, want %q", tt.rule, enforcer, host, gateway, got, tt.want)
					}
				}
			}
		}
	}
}

// A newly started enforcer does not know the age of anything.
func TestAnEnforcerThatStartsKillsNobodyForATimeFromBefore(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-12 * time.Hour, 0, 140 * time.Second, 12 * time.Hour} {
		w := newSkewed(t, 0, skew, skew)
		w.status(time.Minute, fleet.Starting, fleet.ReasonProcessStarted)
		w.stamps = newStamps()
		w.batch(time.Hour,
			view.Change{Kind: view.KindGroup, Key: []string{"lobby"}, After: w.group},
			view.Change{Kind: view.KindSession, Key: []string{"node", string(node)}, After: w.session},
			view.Change{Kind: view.KindIntent, Key: []string{"aaaaaa"}, After: &w.instance.Intent},
			view.Change{Kind: view.KindPlacement, Key: []string{string(node), "aaaaaa"}, After: w.instance.Placement},
			view.Change{Kind: view.KindStatus, Key: []string{"aaaaaa"}, After: w.instance.Status},
		)
		if got, want := w.planned(time.Hour), " again in 2m15s"; got != want {
			t.Errorf("clocks %v off: %q, want %q", skew, got, want)
		}
	}
}

// A crash with a future time, reported before the enforcer started, counts as happening at
// that moment and only once.
func TestATimeInTheFutureIsNotAlwaysNow(t *testing.T) {
	t.Parallel()
	w := newSkewed(t, 0, 12*time.Hour, 0)
	w.status(time.Minute, fleet.Crashed, fleet.ReasonExited, 50*time.Second)
	w.stamps = newStamps()
	w.batch(2*time.Minute, view.Change{Kind: view.KindStatus, Key: []string{"aaaaaa"}, After: w.instance.Status})
	if got, want := w.planned(2*time.Minute+2*time.Second), "create  Replacement 0s;"; got[:min(len(got), len(want))] != want {
		t.Errorf("two seconds later: %q, want %q", got, want)
	}
}

func TestTimesOfRemovedRecordsAreForgotten(t *testing.T) {
	t.Parallel()
	w := newSkewed(t, 0, time.Hour, time.Hour)
	w.status(time.Minute, fleet.Starting, fleet.ReasonProcessStarted)
	if len(w.stamps.known) == 0 {
		t.Fatal("no time is known")
	}
	w.batch(time.Minute,
		view.Change{Kind: view.KindGroup, Key: []string{"lobby"}, Before: w.group},
		view.Change{Kind: view.KindSession, Key: []string{"node", string(node)}, Before: w.session},
		view.Change{Kind: view.KindIntent, Key: []string{"aaaaaa"}, Before: &w.instance.Intent},
		view.Change{Kind: view.KindPlacement, Key: []string{string(node), "aaaaaa"}, Before: w.instance.Placement},
		view.Change{Kind: view.KindStatus, Key: []string{"aaaaaa"}, Before: w.instance.Status},
	)
	if len(w.stamps.known) != 0 {
		t.Errorf("still known: %v", w.stamps.known)
	}
}

// Each plan looks at every instance of its group, so copies would be expensive.
func TestAnInstanceIsNotCopiedWhereTheClocksAgree(t *testing.T) {
	w := newSkewed(t, 0, 0, 0)
	w.status(time.Minute, fleet.Online, fleet.ReasonReady)
	now := noon.Add(time.Hour)
	if copies := testing.AllocsPerRun(100, func() {
		if w.stamps.instance(w.instance, now) != w.instance {
			t.Error("it is another one")
		}
	}); copies != 0 {
		t.Errorf("%v allocations", copies)
	}
}
