package timetable

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/cron"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
)

// start is the time of the first decision.
var start = time.Date(2030, 1, 1, 3, 0, 0, 0, time.UTC)

// act is one action that a gateway carried out.
type act struct {
	at       time.Duration // since start
	run      int64
	action   schedule.Action
	command  string
	instance string
}

// sim runs a schedule on simulated gateways, one decision at a time.
type sim struct {
	fatal     func(string, ...any)
	schedule  *schedule.Schedule
	state     schedule.State
	now       time.Time
	instances []*fleet.Instance
	// deployments are those of the group.
	deployments []deployment.Joined
	// alive is the session that may act.
	alive   schedule.Holder
	watched time.Duration
	acts    []act
	ended   []schedule.Run
	// refuse is the error of the next acts.
	refuse string
}

// nightly restarts group game every day at 4 after warnings at 10, 5 and 1 minutes.
func nightly() *schedule.Schedule {
	return &schedule.Schedule{
		Name: "nightly", Group: "game", Action: schedule.Restart, Cron: "0 4 * * *", Overlap: schedule.Skip, Enabled: true, Since: start,
		Warnings: []schedule.Warning{{BeforeSeconds: 60, Command: "say 1"}, {BeforeSeconds: 600, Command: "say 10"}, {BeforeSeconds: 300, Command: "say 5"}},
	}
}

func newSim(t interface {
	Helper()
	Fatalf(string, ...any)
}, s *schedule.Schedule,
) *sim {
	t.Helper()
	sim := &sim{fatal: t.Fatalf, schedule: s, now: start, alive: schedule.Holder{Replica: "a", Epoch: 1}}
	for n := range 2 {
		sim.instances = append(sim.instances, &fleet.Instance{
			Intent: fleet.Intent{ID: fleet.InstanceID(fmt.Sprint("aaaaa", n)), Name: fmt.Sprint("game-", n+1), Group: "game", Ordinal: n + 1, Generation: 1, Desired: fleet.DesiredRunning},
		})
		sim.online(n)
	}
	return sim
}

// online makes an instance run in its present generation.
func (s *sim) online(n int) { s.become(n, fleet.Online) }

func (s *sim) become(n int, state fleet.State) {
	i := *s.instances[n]
	i.Placement = &fleet.Placement{Generation: i.Intent.Generation, Node: "node-1", Instance: i.Intent.ID}
	i.Status = &fleet.Status{Generation: i.Intent.Generation, State: state, Node: "node-1"}
	s.instances[n] = &i
}

func (s *sim) input() Input {
	times, err := cron.Parse(s.schedule.Cron, s.schedule.Timezone)
	if err != nil {
		s.fatal("%v", err)
	}
	return Input{
		Schedule: s.schedule, State: s.state, Times: times, Now: s.now, Self: s.alive,
		Alive: func(h schedule.Holder) bool { return h == s.alive },
		Group: func(name fleet.GroupName) ([]*fleet.Instance, bool) { return s.instances, name == "game" },
		Find: func(ref string) (*fleet.Instance, bool) {
			for _, i := range s.instances {
				if i.Intent.Name == ref || string(i.Intent.ID) == ref {
					return i, true
				}
			}
			return nil, false
		},
		Node: func(id fleet.NodeID) ([]*fleet.Instance, bool) { return s.instances, id == "node-1" },
		By:   "schedule nightly", Deployments: func(fleet.GroupName) []deployment.Joined { return s.deployments },
		Watched: func(fleet.InstanceID) time.Duration { return s.watched },
	}
}

// decide takes one decision and writes it.
func (s *sim) decide() Decision {
	d := Decide(s.input())
	s.state = d.State
	s.ended = append(s.ended, d.Ended...)
	return d
}

// carryOut acts on the targets of a decision and records the outcome.
func (s *sim) carryOut(d Decision) {
	s.perform(d)
	s.record(d)
}

func (s *sim) perform(d Decision) {
	step := stepOf(d.State.Current)
	for _, at := range d.Do {
		t := step.Targets[at]
		s.acts = append(s.acts, act{s.now.Sub(start), d.State.Current.Number, step.Action, step.Command, t.Name})
		if step.Action == schedule.Restart && t.ID == "" && s.refuse == "" {
			s.deploy("schedule nightly")
		}
		if step.Action == schedule.Restart && s.refuse == "" {
			for n, i := range s.instances {
				if i.Intent.ID == t.ID {
					again := *i
					again.Intent.RestartPending, again.Intent.Desired = true, fleet.DesiredStopped
					s.instances[n] = &again
				}
			}
		}
	}
}

func (s *sim) record(d Decision) {
	done, failed := make([]string, len(d.Do)), make([]string, len(d.Do))
	for k := range failed {
		failed[k] = s.refuse
	}
	if next, ok := Done(s.state, *d.State.Current, d.Do, done, failed); ok {
		s.state = next
	}
}

func stepOf(r *schedule.Run) schedule.Step {
	for _, step := range r.Steps {
		if !step.Begun.IsZero() && step.Ended.IsZero() {
			return step
		}
	}
	return schedule.Step{}
}

// deploy begins a deployment that restarts the group.
func (s *sim) deploy(by string) {
	s.deployments = append(s.deployments, deployment.Joined{Deployment: &deployment.Deployment{
		Group: "game", Number: int64(len(s.deployments) + 1), Trigger: deployment.TriggerRestart, By: by,
	}})
}

// deployment sets the state of the latest deployment.
func (s *sim) deployment(state deployment.State) {
	s.deployments[len(s.deployments)-1].Progress = &deployment.Progress{State: state}
}

// restarted lets a requested restart succeed.
func (s *sim) restarted() {
	if s.deploying() {
		s.deployment(deployment.Completed)
	}
	for n, i := range s.instances {
		if i.Intent.RestartPending {
			again := *i
			again.Intent.RestartPending, again.Intent.Desired = false, fleet.DesiredRunning
			again.Intent.Generation++
			s.instances[n] = &again
			s.online(n)
		}
	}
}

// settle decides and acts until nothing is left to do now.
func (s *sim) settle() Decision {
	for range 100 {
		d := s.decide()
		switch {
		case len(d.Do) > 0:
			s.carryOut(d)
		case !d.Changed:
			return d
		}
	}
	s.fatal("decisions do not settle: %+v", s.state)
	return Decision{}
}

// runUntil moves the time from one wake-up to the next, with all restarts succeeding.
func (s *sim) runUntil(end time.Duration) {
	for range 10_000 {
		d := s.settle()
		for s.anyRestarting() {
			s.restarted()
			d = s.settle()
		}
		if d.Wake.IsZero() || d.Wake.After(start.Add(end)) {
			s.now = start.Add(end)
			return
		}
		if !d.Wake.After(s.now) {
			s.fatal("wakes at %v, at %v", d.Wake, s.now)
		}
		s.now = d.Wake
	}
	s.fatal("too many wake-ups")
}

func (s *sim) deploying() bool {
	return len(s.deployments) > 0 && s.deployments[len(s.deployments)-1].Active()
}

func (s *sim) anyRestarting() bool {
	return s.deploying() || slices.ContainsFunc(s.instances, func(i *fleet.Instance) bool { return i.Intent.RestartPending })
}

func (s *sim) acted(t *testing.T, want ...act) {
	t.Helper()
	if !slices.Equal(s.acts, want) {
		t.Errorf("acted\n%v, want\n%v", s.acts, want)
	}
}

func (s *sim) results(t *testing.T, want ...schedule.Result) {
	t.Helper()
	var got []schedule.Result
	for _, r := range s.ended {
		got = append(got, r.Result)
	}
	if !slices.Equal(got, want) {
		t.Errorf("ended %v, want %v; %+v", got, want, s.ended)
	}
}

func TestADailyRestartWarnsThreeTimes(t *testing.T) {
	s := newSim(t, nightly())
	s.runUntil(2 * time.Hour)
	say := func(minute int, command string) []act {
		at := time.Duration(minute) * time.Minute
		return []act{{at, 1, schedule.Command, command, "game-1"}, {at, 1, schedule.Command, command, "game-2"}}
	}
	s.acted(t, slices.Concat(say(50, "say 10"), say(55, "say 5"), say(59, "say 1"), []act{{time.Hour, 1, schedule.Restart, "", "game"}})...)
	s.results(t, schedule.Completed)
}

func TestAnInstanceThatDoesNotComeBackFailsTheRun(t *testing.T) {
	one := nightly()
	one.Group, one.Instance, one.Warnings = "", "game-1", nil
	s := newSim(t, one)
	s.now = start.Add(time.Hour)
	s.settle()
	s.acted(t, act{time.Hour, 1, schedule.Restart, "", "game-1"})
	if d := s.settle(); d.Wake != s.now.Add(RestartPatience) {
		t.Errorf("wakes at %v", d.Wake)
	}
	s.watched = RestartPatience
	s.settle()
	s.results(t, schedule.Failed)
}

func TestARestartOfSeveralInstancesIsADeployment(t *testing.T) {
	for state, want := range map[deployment.State]schedule.Result{
		deployment.Completed: schedule.Completed, deployment.Failed: schedule.Failed, deployment.RolledBack: schedule.Failed, deployment.Canceled: schedule.Failed,
	} {
		s := newSim(t, nightly())
		s.deploy("ann")
		s.deployment(deployment.Completed)
		s.now = start.Add(time.Hour)
		s.settle()
		s.acted(t, act{time.Hour, 1, schedule.Restart, "", "game"})
		for _, active := range []deployment.State{deployment.InProgress, deployment.Paused} {
			s.deployment(active)
			s.settle()
			s.results(t)
		}
		s.deployment(state)
		s.settle()
		s.results(t, want)
		if len(s.acts) != 1 {
			t.Errorf("%s: acted %v", state, s.acts)
		}
	}
}

func TestADeploymentThatBeganFirstFailsTheRun(t *testing.T) {
	s := newSim(t, nightly())
	s.now = start.Add(time.Hour)
	for d := s.decide(); len(d.Do) == 0; d = s.decide() {
	}
	s.deploy("ann")
	s.refuse = "deployment 1 began first"
	s.settle()
	s.results(t, schedule.Failed)
	if len(s.deployments) != 1 {
		t.Errorf("%d deployments", len(s.deployments))
	}
}

func TestANodeIsDrainedAfterItsInstancesWereWarned(t *testing.T) {
	for name, c := range map[string]struct {
		node fleet.NodeID
		want schedule.Result
		acts []act
	}{
		"a node": {"node-1", schedule.Completed, []act{
			{59 * time.Minute, 1, schedule.Command, "say soon", "game-1"},
			{59 * time.Minute, 1, schedule.Command, "say soon", "game-2"},
			{time.Hour, 1, schedule.Drain, "", "node-1"},
		}},
		"a node that was deleted": {"node-2", schedule.Failed, nil},
	} {
		s := newSim(t, &schedule.Schedule{
			Name: "window", Node: c.node, Action: schedule.Drain, Drain: &schedule.DrainSettings{TimeoutSeconds: 60}, Cron: "0 4 * * *",
			Overlap: schedule.Skip, Enabled: true, Since: start, Warnings: []schedule.Warning{{BeforeSeconds: 60, Command: "say soon"}},
		})
		s.runUntil(2 * time.Hour)
		s.results(t, c.want)
		if !slices.Equal(s.acts, c.acts) {
			t.Errorf("%s: acted %v", name, s.acts)
		}
	}
}

func TestAKilledGatewaysDrainIsRepeated(t *testing.T) {
	s := newSim(t, &schedule.Schedule{
		Name: "window", Node: "node-1", Action: schedule.Undrain, Cron: "0 4 * * *", Overlap: schedule.Skip, Enabled: true, Since: start,
	})
	s.now = start.Add(time.Hour)
	s.perform(s.decide())
	s.alive = schedule.Holder{Replica: "b", Epoch: 2}
	s.settle()
	s.results(t, schedule.Completed)
	if len(s.acts) != 2 {
		t.Errorf("acted %v", s.acts)
	}
}

func TestARestartOfOneInstanceIsInPlace(t *testing.T) {
	s := newSim(t, nightly())
	s.schedule.Warnings, s.instances = nil, s.instances[:1]
	s.runUntil(2 * time.Hour)
	s.acted(t, act{time.Hour, 1, schedule.Restart, "", "game-1"})
	s.results(t, schedule.Completed)
}

func TestWhatIsDueDuringAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		at   time.Duration
		acts int
		want []schedule.Result
	}{
		"within the grace, without its warnings": {time.Hour + 4*time.Minute, 1, []schedule.Result{schedule.Completed}},
		"after the grace":                        {time.Hour + 6*time.Minute, 0, []schedule.Result{schedule.Missed}},
		"of several days only the last counts":   {73*time.Hour + time.Minute, 1, []schedule.Result{schedule.Completed}},
		"warnings that are not too late":         {55*time.Minute + 20*time.Second, 5, []schedule.Result{schedule.Completed}},
	} {
		s := newSim(t, nightly())
		s.now = start.Add(c.at)
		s.runUntil(c.at + 30*time.Minute)
		if len(s.acts) != c.acts {
			t.Errorf("%s: acted %v", name, s.acts)
		}
		s.results(t, c.want...)
	}
}

func TestARunIsLeftOutOrWaitsWhileAnotherOneRuns(t *testing.T) {
	for overlap, want := range map[schedule.Overlap][]schedule.Result{
		schedule.Skip:  {schedule.Skipped, schedule.Skipped, schedule.Completed},
		schedule.Queue: {schedule.Skipped, schedule.Completed, schedule.Completed},
	} {
		every := nightly()
		every.Cron, every.Warnings, every.Overlap = "*/10 * * * *", nil, overlap
		s := newSim(t, every)
		for range 3 {
			s.now = s.now.Add(10 * time.Minute)
			s.settle() // the first restart does not end
		}
		for range 2 * len(s.instances) {
			s.restarted()
			s.settle()
		}
		s.results(t, want...)
		if overlap == schedule.Queue && s.ended[2].Due != start.Add(20*time.Minute) {
			t.Errorf("the run of %v waited", s.ended[2].Due)
		}
	}
}

func TestJitterDelaysEachRunByItsOwnTime(t *testing.T) {
	jitter := nightly()
	jitter.Cron, jitter.Action, jitter.Command, jitter.Warnings, jitter.JitterSeconds = "*/10 * * * *", schedule.Command, "x", nil, 600
	jitter.Overlap = schedule.Queue
	s := newSim(t, jitter)
	for range 40 {
		d := s.settle()
		in := s.input()
		if next, ok := NextAction(jitter, s.state, in.Times, s.now); !ok || !next.After(s.now) {
			t.Fatalf("the next action is at %v, at %v", next, s.now)
		}
		s.now = d.Wake
	}
	late := 0
	for _, r := range s.ended {
		if r.Result == schedule.Missed {
			t.Errorf("missed %+v", r)
		}
		if r.Result == schedule.Completed && r.Begun.Sub(r.Due) > time.Minute {
			late++
		}
	}
	if shortest := Shortest(s.input().Times, start); shortest != 10*time.Minute {
		t.Errorf("the shortest time between two runs is %v", shortest)
	}
	if late == 0 || len(s.ended) < 10 {
		t.Errorf("%d of %d runs were delayed", late, len(s.ended))
	}
}

func TestAScheduleThatIsTurnedOffCancelsItsRun(t *testing.T) {
	s := newSim(t, nightly())
	s.now = start.Add(55 * time.Minute)
	s.settle()
	off := *s.schedule
	off.Enabled = false
	s.schedule = &off
	s.settle()
	s.results(t, schedule.Canceled)
	s.runUntil(2 * time.Hour)
	s.results(t, schedule.Canceled)
}

func TestAnActionThatIsRefusedFails(t *testing.T) {
	s := newSim(t, nightly())
	s.refuse = "there is no room"
	s.now = start.Add(time.Hour)
	s.settle()
	s.results(t, schedule.Failed)
	if got := s.ended[0].Message; got != "game: there is no room" {
		t.Errorf("message %q", got)
	}
}

func TestAGroupOrInstanceThatDoesNotExistFails(t *testing.T) {
	gone := nightly()
	gone.Group, gone.Warnings = "gone", nil
	s := newSim(t, gone)
	s.runUntil(time.Hour)
	s.results(t, schedule.Failed)
	one := nightly()
	one.Group, one.Instance, one.Action, one.Command, one.Warnings = "", "game-9", schedule.Command, "x", nil
	s = newSim(t, one)
	s.runUntil(time.Hour)
	s.results(t, schedule.Failed)
}

func TestAKilledGatewaysCommandIsNotSentAgain(t *testing.T) {
	for name, sent := range map[string]bool{"before it was sent": false, "after it was sent": true} {
		s := newSim(t, nightly())
		s.schedule.Action, s.schedule.Command, s.schedule.Warnings = schedule.Command, "save-all", nil
		s.now = start.Add(time.Hour)
		d := s.decide()
		if sent {
			s.perform(d)
		}
		before := len(s.acts)
		if d := Decide(s.otherGateway(true)); len(d.Do) > 0 || d.Changed {
			t.Errorf("%s: another gateway acts while the holder lives: %+v", name, d)
		}
		s.alive = schedule.Holder{Replica: "b", Epoch: 2}
		s.settle()
		if len(s.acts) != before {
			t.Errorf("%s: sent again: %v", name, s.acts)
		}
		s.results(t, schedule.Interrupted)
	}
}

// otherGateway returns the input of gateway b.
func (s *sim) otherGateway(holderLives bool) Input {
	in := s.input()
	in.Self = schedule.Holder{Replica: "b", Epoch: 2}
	in.Alive = func(schedule.Holder) bool { return holderLives }
	return in
}

func TestAKilledGatewaysRestartIsContinued(t *testing.T) {
	for name, asked := range map[string]bool{"before it asked": false, "after it asked": true} {
		s := newSim(t, nightly())
		s.schedule.Warnings = nil
		s.now = start.Add(time.Hour)
		d := s.decide()
		if asked {
			s.perform(d)
		}
		s.alive = schedule.Holder{Replica: "b", Epoch: 2}
		s.runUntil(90 * time.Minute)
		s.results(t, schedule.Completed)
		if len(s.acts) != 1 || len(s.deployments) != 1 {
			t.Errorf("%s: acted %v, %d deployments", name, s.acts, len(s.deployments))
		}
	}
}

func TestHistoryAndTargetsAreBounded(t *testing.T) {
	many := nightly()
	many.Cron, many.Action, many.Command, many.Warnings = "* * * * *", schedule.Command, "x", nil
	s := newSim(t, many)
	for n := range schedule.MaxTargets {
		i := *s.instances[0]
		i.Intent.ID, i.Intent.Name = fleet.InstanceID(fmt.Sprintf("b%05d", n)), fmt.Sprint("game-", n+3)
		s.instances = append(s.instances, &i)
	}
	s.runUntil(30 * time.Minute)
	if n := len(s.state.History); n != schedule.MaxHistory {
		t.Errorf("%d runs are kept", n)
	}
	step := s.state.History[0].Steps[0]
	if len(step.Targets) != schedule.MaxKept || step.Omitted != schedule.MaxTargets+2-schedule.MaxKept {
		t.Errorf("%d targets are kept, %d omitted", len(step.Targets), step.Omitted)
	}
}

// TestEachCommandIsSentAtMostOnce kills gateways at random moments and lets time pass.
func TestEachCommandIsSentAtMostOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sched := nightly()
		sched.Cron, sched.Action, sched.Command = "*/15 * * * *", schedule.Command, "save-all"
		sched.Overlap = rapid.SampledFrom([]schedule.Overlap{schedule.Skip, schedule.Queue}).Draw(t, "overlap")
		sched.JitterSeconds = rapid.SampledFrom([]int{0, 30, 900}).Draw(t, "jitter")
		s := newSim(t, sched)
		epoch := int64(1)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			d := s.decide()
			if len(d.Do) > 0 {
				switch rapid.IntRange(0, 3).Draw(t, "ends") {
				case 0: // killed before it acts
					epoch++
				case 1: // killed after it has acted
					s.perform(d)
					epoch++
				default:
					s.carryOut(d)
				}
				s.alive = schedule.Holder{Replica: "a", Epoch: epoch}
			}
			s.now = s.now.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds")) * time.Second)
		}
		dues := map[time.Time]bool{}
		for _, r := range append(slices.Clone(s.ended), deref(s.state.Current)...) {
			if dues[r.Due] {
				t.Fatalf("two runs of %v", r.Due)
			}
			dues[r.Due] = true
		}
		seen := map[act]bool{}
		for _, a := range s.acts {
			a.at = 0
			if seen[a] {
				t.Fatalf("sent twice: %+v", a)
			}
			seen[a] = true
		}
		if len(s.state.History) > schedule.MaxHistory {
			t.Fatalf("%d runs are kept", len(s.state.History))
		}
	})
}

func deref(r *schedule.Run) []schedule.Run {
	if r == nil {
		return nil
	}
	return []schedule.Run{*r}
}
