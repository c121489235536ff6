package timetable

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
)

const (
	// Grace is how late an action still takes place, after an outage of all gateways.
	Grace = 5 * time.Minute
	// WarningGrace is how late a warning is still sent.
	WarningGrace = 30 * time.Second
	// RestartPatience is how long a restarted instance may take until it is ONLINE.
	RestartPatience = 15 * time.Minute
	// maxArrivals bounds the due times that one decision handles.
	maxArrivals = 100
)

// Times are the due times of a schedule. See cron.Schedule.
type Times interface {
	Next(after time.Time) (time.Time, bool)
	Latest(since, until time.Time) (time.Time, bool)
}

// Input is what a decision depends on.
type Input struct {
	Schedule *schedule.Schedule
	// State is zero before the first run.
	State schedule.State
	Times Times
	Now   time.Time
	// Self is the gateway that decides.
	Self schedule.Holder
	// Acting says that Self still acts on the targets that it began.
	Acting bool
	// Alive reports whether a gateway's session still exists.
	Alive func(schedule.Holder) bool
	// Group returns whether a group exists, and its instances in order of ordinal.
	Group func(fleet.GroupName) ([]*fleet.Instance, bool)
	// Node returns whether a node exists, and the instances with a placement on it.
	Node func(fleet.NodeID) ([]*fleet.Instance, bool)
	// Find returns an instance by its ID or name.
	Find func(ref string) (*fleet.Instance, bool)
	// Deployments returns the deployments of a group, the oldest first.
	Deployments func(fleet.GroupName) []deployment.Joined
	// By is who the deployments of the schedule are by.
	By string
	// Watched is how long this gateway has watched a restarted instance.
	Watched func(fleet.InstanceID) time.Duration
}

// Decision is what to do next.
type Decision struct {
	// State is the next state. Write it if Changed.
	State   schedule.State
	Changed bool
	// Do are the targets of the current step to act on once the write has succeeded.
	Do []int
	// Ended has the runs that the write ends.
	Ended []schedule.Run
	// Wake is when to decide again; zero if only a change requires it.
	Wake time.Time
}

// Decide returns the next step of a schedule.
func Decide(in Input) Decision {
	d := decider{in: in, out: Decision{State: clone(in.State)}}
	d.out.State.Name = in.Schedule.Name
	d.arrivals()
	d.proceed()
	return d.out
}

type decider struct {
	in  Input
	out Decision
}

// clone copies what a decision may change.
func clone(s schedule.State) schedule.State {
	s.History = slices.Clone(s.History)
	if s.Current != nil {
		run := *s.Current
		run.Steps = slices.Clone(run.Steps)
		for n := range run.Steps {
			run.Steps[n].Targets = slices.Clone(run.Steps[n].Targets)
		}
		s.Current = &run
	}
	return s
}

func (d *decider) wakeAt(t time.Time) {
	if d.out.Wake.IsZero() || t.Before(d.out.Wake) {
		d.out.Wake = t
	}
}

// arrivals begins runs that are due, or records why not.
func (d *decider) arrivals() {
	s, st, now := d.in.Schedule, &d.out.State, d.in.Now
	if !s.Enabled {
		d.cancel()
		return
	}
	d.dequeue()
	for range maxArrivals {
		since := s.Since
		if st.Handled.After(since) {
			since = st.Handled
		}
		due, ok := d.in.Times.Next(since)
		if !ok {
			return
		}
		at := due.Add(s.Jitter(due))
		if begin := at.Add(-s.Lead()); begin.After(now) {
			d.wakeAt(begin)
			return
		}
		if now.After(at.Add(Grace)) {
			if latest, ok := d.in.Times.Latest(due, now); ok {
				due = latest // of several missed times only the latest counts
			}
		}
		d.arrive(due)
	}
	d.wakeAt(now)
}

// NextAction returns when the next action that has not begun is due. ok is false if the schedule is
// turned off or not due within five years.
func NextAction(s *schedule.Schedule, st schedule.State, times Times, now time.Time) (at time.Time, ok bool) {
	if !s.Enabled {
		return at, false
	}
	if run := st.Current; run != nil && run.By == "" && run.At.After(now) {
		return run.At, true
	}
	due := now.Add(-time.Duration(s.JitterSeconds) * time.Second)
	for _, since := range []time.Time{s.Since, st.Handled} {
		if since.After(due) {
			due = since
		}
	}
	for range maxArrivals {
		if due, ok = times.Next(due); !ok {
			return at, false
		}
		if at = due.Add(s.Jitter(due)); at.After(now) {
			break
		}
	}
	return at, true
}

// Shortest returns the shortest time between two of the next due times. A jitter must not exceed it:
// runs would change their order.
func Shortest(times Times, now time.Time) time.Duration {
	shortest := time.Duration(math.MaxInt64)
	due, ok := times.Next(now)
	for range maxArrivals {
		next, more := times.Next(due)
		if !ok || !more {
			break
		}
		shortest, due = min(shortest, next.Sub(due)), next
	}
	return shortest
}

// arrive handles one due time.
func (d *decider) arrive(due time.Time) {
	s, st := d.in.Schedule, &d.out.State
	st.Handled, d.out.Changed = due, true
	at := due.Add(s.Jitter(due))
	switch {
	case d.in.Now.After(at.Add(Grace)):
		d.leftOut(due, schedule.Missed, fmt.Sprintf("no gateway ran at that time, nor in the %s after it", Grace))
	case st.Current == nil:
		run := NewRun(s, st, at, d.in.Now)
		run.Due = due
		st.Runs, st.Current = run.Number, &run
	case s.Overlap == schedule.Queue && st.Queued.IsZero():
		st.Queued = due
	default:
		d.leftOut(due, schedule.Skipped, fmt.Sprintf("run %d was still in progress", st.Current.Number))
	}
}

// dequeue begins the run that waits for the previous one.
func (d *decider) dequeue() {
	s, st := d.in.Schedule, &d.out.State
	if st.Queued.IsZero() || st.Current != nil {
		return
	}
	at := st.Queued.Add(s.Jitter(st.Queued))
	if at.Before(d.in.Now) {
		at = d.in.Now
	}
	run := NewRun(s, st, at, d.in.Now)
	run.Due = st.Queued
	st.Runs, st.Current, st.Queued = run.Number, &run, time.Time{}
	d.out.Changed = true
}

// NewRun returns a run of a schedule whose action is due at a time.
func NewRun(s *schedule.Schedule, st *schedule.State, at, now time.Time) schedule.Run {
	return schedule.Run{Number: st.Runs + 1, At: at, Begun: now, Group: s.Group, Instance: s.Instance, Node: s.Node, Steps: steps(s, at)}
}

// steps returns the warnings in order of time, and the action.
func steps(s *schedule.Schedule, at time.Time) []schedule.Step {
	var out []schedule.Step
	for _, w := range s.Warnings {
		out = append(out, schedule.Step{
			Action: schedule.Command, Command: w.Command, BeforeSeconds: w.BeforeSeconds, At: at.Add(-time.Duration(w.BeforeSeconds) * time.Second),
		})
	}
	slices.SortFunc(out, func(a, b schedule.Step) int { return a.At.Compare(b.At) })
	return append(out, schedule.Step{Action: s.Action, Command: s.Command, Count: s.Count, Drain: s.Drain, Backup: s.Backup, At: at})
}

// leftOut records a run that did not take place.
func (d *decider) leftOut(due time.Time, result schedule.Result, message string) {
	st := &d.out.State
	st.Runs++
	d.record(schedule.Run{
		Number: st.Runs, Due: due, At: due.Add(d.in.Schedule.Jitter(due)), Begun: d.in.Now, Ended: d.in.Now, Result: result, Message: message,
		Group: d.in.Schedule.Group, Instance: d.in.Schedule.Instance, Node: d.in.Schedule.Node,
	})
}

func (d *decider) record(run schedule.Run) {
	st := &d.out.State
	st.History = append([]schedule.Run{run}, st.History...)
	st.History = st.History[:min(len(st.History), schedule.MaxHistory)]
	for len(st.History) > 1 && size(st.History) > schedule.MaxHistoryBytes {
		st.History = st.History[:len(st.History)-1]
	}
	d.out.Ended, d.out.Changed = append(d.out.Ended, run), true
}

// size returns the size of runs as they are stored, in bytes.
func size(runs []schedule.Run) int {
	b, err := json.Marshal(runs)
	if err != nil { // unreachable: only strings, numbers and times
		return 0
	}
	return len(b)
}

// cancel ends the run of a disabled schedule, unless a user asked for it or its action has begun.
func (d *decider) cancel() {
	st := &d.out.State
	if !st.Queued.IsZero() {
		st.Queued, d.out.Changed = time.Time{}, true
	}
	if run := st.Current; run != nil && run.By == "" && run.Steps[len(run.Steps)-1].Begun.IsZero() {
		d.end(schedule.Canceled, "the schedule was turned off")
	}
}

// end ends the current run.
func (d *decider) end(result schedule.Result, message string) {
	run := *d.out.State.Current
	run.Ended, run.Result, run.Message, run.Holder = d.in.Now, result, message, schedule.Holder{}
	d.out.State.Current = nil
	d.record(run)
}

// proceed continues the current run.
func (d *decider) proceed() {
	run := d.out.State.Current
	if run == nil {
		return
	}
	for n := range run.Steps {
		step := &run.Steps[n]
		if !step.Ended.IsZero() {
			continue
		}
		last := n == len(run.Steps)-1
		if step.Begun.IsZero() && !d.begin(run, step, last) {
			return
		}
		if step.Ended.IsZero() && !d.work(run, step) {
			return
		}
		shorten(step)
	}
	result, message := outcome(run.Steps[len(run.Steps)-1])
	d.end(result, message)
	d.wakeAt(d.in.Now) // another run may wait
}

// begin begins a step. It returns false if the step is not due, or the run has ended.
func (d *decider) begin(run *schedule.Run, step *schedule.Step, last bool) bool {
	late := d.in.Now.Sub(step.At)
	switch {
	case late < 0:
		d.wakeAt(step.At)
		return false
	case last && late > Grace:
		d.end(schedule.Missed, fmt.Sprintf("no gateway ran at that time, nor in the %s after it", Grace))
		return false
	case !last && late > WarningGrace:
		step.Begun, step.Ended, d.out.Changed = d.in.Now, d.in.Now, true
		step.Message = fmt.Sprintf("left out: %s too late", late.Round(time.Second))
		return true
	}
	step.Begun, d.out.Changed = d.in.Now, true
	step.Targets, step.Message = Targets(d.in, run, *step)
	if more := len(step.Targets) - schedule.MaxTargets; more > 0 {
		step.Targets, step.Omitted = step.Targets[:schedule.MaxTargets], more
		step.Message = fmt.Sprintf("%d instances are left out: a step acts on at most %d", more, schedule.MaxTargets)
	}
	if len(step.Targets) == 0 {
		step.Ended = d.in.Now
	}
	return true
}

// Targets returns the instances that a step would act on now, or why there are none.
func Targets(in Input, run *schedule.Run, step schedule.Step) (out []schedule.Target, message string) {
	if run.Instance != "" {
		i, ok := in.Find(run.Instance)
		if !ok {
			return []schedule.Target{{Name: run.Instance, State: schedule.TargetFailed, Message: "there is no instance " + run.Instance}}, ""
		}
		return []schedule.Target{target(i)}, ""
	}
	if run.Node != "" {
		return nodeTargets(in, run.Node, step)
	}
	all, ok := in.Group(run.Group)
	switch {
	case !ok:
		return []schedule.Target{{Name: string(run.Group), State: schedule.TargetFailed, Message: "there is no group " + string(run.Group)}}, ""
	case step.Action == schedule.Start:
		return []schedule.Target{{Name: string(run.Group), State: schedule.TargetPending}}, ""
	}
	for _, i := range all {
		if acts(step.Action, i) {
			out = append(out, target(i))
		}
	}
	switch {
	case len(out) == 0 && step.Action == schedule.Backup:
		message = "no instance of the group has a directory"
	case len(out) == 0:
		message = "no instance of the group runs"
	case step.Action == schedule.Restart && len(out) > 1:
		return []schedule.Target{{
			Name: string(run.Group), Generation: latest(in, run.Group), State: schedule.TargetPending,
			Message: fmt.Sprintf("a rolling deployment restarts %d instances", len(out)),
		}}, ""
	}
	return out, message
}

// nodeTargets is Targets for a step that concerns a node. Its warnings go to the instances on the node.
func nodeTargets(in Input, node fleet.NodeID, step schedule.Step) (out []schedule.Target, message string) {
	all, ok := in.Node(node)
	switch {
	case !ok:
		return []schedule.Target{{Name: string(node), State: schedule.TargetFailed, Message: "there is no node " + string(node)}}, ""
	case step.Action == schedule.Drain, step.Action == schedule.Undrain:
		return []schedule.Target{{Name: string(node), State: schedule.TargetPending}}, ""
	}
	for _, i := range all {
		if acts(step.Action, i) {
			out = append(out, target(i))
		}
	}
	if len(out) == 0 {
		message = "no instance on the node runs"
	}
	return out, message
}

// latest returns the number of the latest deployment of a group, 0 if there was none.
func latest(in Input, g fleet.GroupName) (number int64) {
	for _, d := range in.Deployments(g) {
		number = max(number, d.Number)
	}
	return number
}

func target(i *fleet.Instance) schedule.Target {
	return schedule.Target{ID: i.Intent.ID, Name: i.Intent.Name, Generation: i.Intent.Generation, State: schedule.TargetPending}
}

// acts reports whether an action on a group concerns an instance.
func acts(a schedule.Action, i *fleet.Instance) bool {
	stopping := i.Intent.Desired == fleet.DesiredStopped && !i.Intent.RestartPending
	switch a {
	case schedule.Command:
		return i.State().Running()
	case schedule.Stop:
		return !i.Terminal() && !stopping || i.Intent.RestartPending
	case schedule.Restart:
		return !i.Terminal() && !stopping && !i.Intent.RestartPending && i.State() != fleet.Sleeping
	case schedule.Backup: // also of one that does not run
		return i.Node() != ""
	case schedule.Start, schedule.Drain, schedule.Undrain:
	}
	return false
}

// work continues a begun step. It returns true when the step has ended.
func (d *decider) work(run *schedule.Run, step *schedule.Step) bool {
	if step.Action == schedule.Restart {
		return d.restart(run, step)
	}
	busy := false
	for n := range step.Targets {
		t := &step.Targets[n]
		switch {
		case t.State == schedule.TargetPending:
		case t.State != schedule.TargetBegun:
			continue
		case d.held(run):
			busy = true // a change of the session leads here again
			continue
		case step.Action == schedule.Stop && d.again(t):
			t.State, d.out.Changed = schedule.TargetDone, true
			continue
		case !repeatable(step.Action, *t):
			t.State, t.Message, d.out.Changed = schedule.TargetUnknown, "the gateway ended before it recorded the outcome", true
			continue
		}
		t.State, d.out.Changed = schedule.TargetBegun, true
		d.out.Do = append(d.out.Do, n)
	}
	if len(d.out.Do) > 0 {
		run.Holder = d.in.Self
		return false
	}
	if busy {
		return false
	}
	step.Ended, d.out.Changed = d.in.Now, true
	return true
}

// held reports whether a living gateway acts.
func (d *decider) held(run *schedule.Run) bool {
	if run.Holder == d.in.Self {
		return d.in.Acting
	}
	return d.in.Alive(run.Holder)
}

// again reports whether an instance has started again since it was chosen.
func (d *decider) again(t *schedule.Target) bool {
	i, ok := d.in.Find(string(t.ID))
	return ok && i.Intent.Generation > t.Generation
}

func repeatable(a schedule.Action, t schedule.Target) bool {
	switch a {
	case schedule.Drain, schedule.Undrain: // what holds already is not changed
		return true
	case schedule.Backup: // the node goes on with one that was begun
		return false
	case schedule.Command, schedule.Start, schedule.Stop, schedule.Restart:
	}
	return a != schedule.Command && t.ID != ""
}

// restart restarts one instance, or a group by a deployment. The runs that an earlier version began have
// several instances: it restarts one after the other, and leaves out the others after a failure.
func (d *decider) restart(run *schedule.Run, step *schedule.Step) bool {
	failed := ""
	for n := range step.Targets {
		t := &step.Targets[n]
		switch t.State {
		case schedule.TargetBegun:
			if !d.restarted(run, n, t) {
				return false
			}
		case schedule.TargetPending:
			if failed == "" {
				t.State, run.Holder, d.out.Changed = schedule.TargetBegun, d.in.Self, true
				d.out.Do = []int{n}
				return false
			}
			t.State, t.Message, d.out.Changed = schedule.TargetSkipped, "left out, because "+failed+" did not restart", true
		case schedule.TargetDone, schedule.TargetFailed, schedule.TargetSkipped, schedule.TargetUnknown:
		}
		if t.State == schedule.TargetFailed {
			failed = t.Name
		}
	}
	step.Ended, d.out.Changed = d.in.Now, true
	return true
}

// restarted follows the restart of one instance. It returns true when that has ended.
func (d *decider) restarted(run *schedule.Run, n int, t *schedule.Target) bool {
	end := func(state schedule.TargetState, message string) bool {
		t.State, t.Message, d.out.Changed = state, message, true
		return true
	}
	if t.ID == "" {
		return d.deployed(run, n, t, end)
	}
	i, ok := d.in.Find(string(t.ID))
	switch {
	case !ok:
		return end(schedule.TargetFailed, "its record was removed")
	case i.Intent.Generation > t.Generation && i.State() == fleet.Online:
		return end(schedule.TargetDone, "")
	case i.Intent.Generation > t.Generation && i.Terminal():
		return end(schedule.TargetFailed, "it "+i.State().Text()+" after the restart")
	case i.Intent.Generation == t.Generation && !i.Intent.RestartPending:
		if d.held(run) {
			return false
		}
		if run.Holder == d.in.Self {
			return end(schedule.TargetFailed, "it was stopped before it started again")
		}
		run.Holder, d.out.Changed = d.in.Self, true
		d.out.Do = []int{n}
		return false
	}
	if left := RestartPatience - d.in.Watched(t.ID); left > 0 {
		d.wakeAt(d.in.Now.Add(left))
		return false
	}
	return end(schedule.TargetFailed, fmt.Sprintf("it is not ONLINE after %s", RestartPatience))
}

// deployed follows the deployment that restarts a group: the one after the latest when the step began. It
// returns true when that has ended.
func (d *decider) deployed(run *schedule.Run, n int, t *schedule.Target, end func(schedule.TargetState, string) bool) bool {
	number := t.Generation + 1
	for _, is := range d.in.Deployments(run.Group) {
		switch {
		case is.Number != number:
		case is.By != d.in.By || is.Trigger != deployment.TriggerRestart:
			return end(schedule.TargetFailed, fmt.Sprintf("deployment %d of the group began first", number))
		case is.Active():
			return false // a change of the deployment leads here again
		case is.State() == deployment.Completed:
			return end(schedule.TargetDone, fmt.Sprintf("deployment %d restarted the instances", number))
		default:
			return end(schedule.TargetFailed, fmt.Sprintf("deployment %d did not complete: see its state", number))
		}
	}
	switch {
	case latest(d.in, run.Group) > number:
		return end(schedule.TargetUnknown, fmt.Sprintf("deployment %d is no longer kept", number))
	case d.held(run):
		return false // a change of the session leads here again
	}
	run.Holder, d.out.Changed = d.in.Self, true
	d.out.Do = []int{n}
	return false
}

// shorten drops targets of a finished step beyond the bound, done ones first.
func shorten(step *schedule.Step) {
	if len(step.Targets) <= schedule.MaxKept {
		return
	}
	slices.SortStableFunc(step.Targets, func(a, b schedule.Target) int {
		done := func(t schedule.Target) int {
			if t.State == schedule.TargetDone {
				return 1
			}
			return 0
		}
		return done(a) - done(b)
	})
	step.Omitted += len(step.Targets) - schedule.MaxKept
	step.Targets = step.Targets[:schedule.MaxKept]
}

// outcome is the result of a run's action.
func outcome(action schedule.Step) (schedule.Result, string) {
	result, message := schedule.Completed, action.Message
	for _, t := range action.Targets {
		switch t.State {
		case schedule.TargetFailed:
			return schedule.Failed, t.Name + ": " + t.Message
		case schedule.TargetUnknown:
			result, message = schedule.Interrupted, t.Name+": "+t.Message
		case schedule.TargetPending, schedule.TargetBegun, schedule.TargetDone, schedule.TargetSkipped:
		}
	}
	return result, message
}

// Done records the outcomes of the targets that a gateway acted on in a run. failed has an error message
// or "" for each target of Decision.Do, done what a success did.
func Done(st schedule.State, run schedule.Run, do []int, done, failed []string) (schedule.State, bool) {
	st = clone(st)
	if st.Current == nil || st.Current.Number != run.Number || !st.Current.Begun.Equal(run.Begun) {
		return st, false // also a run of a schedule that was deleted and made again
	}
	for n := range st.Current.Steps {
		step := &st.Current.Steps[n]
		if step.Begun.IsZero() || !step.Ended.IsZero() {
			continue
		}
		for k, at := range do {
			t := &step.Targets[at]
			switch {
			case t.State != schedule.TargetBegun:
			case failed[k] != "":
				t.State, t.Message = schedule.TargetFailed, failed[k]
			case step.Action != schedule.Restart: // a restart is done when the instance is ONLINE
				t.State, t.Message = schedule.TargetDone, done[k]
			}
		}
		return st, true
	}
	return st, false
}
