// Package scheduleops writes schedules and overlays, and runs their steps.
package scheduleops

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/nodeops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/scheduleops/timetable"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/cron"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Schedules writes schedules and overlays. It is safe for concurrent use.
type Schedules struct {
	*txn.Committer
	groups    *groupops.Groups
	instances *instanceops.Instances
	nodes     *nodeops.Nodes
}

// New returns the operations on schedules and overlays.
func New(c *txn.Committer, groups *groupops.Groups, instances *instanceops.Instances, nodes *nodeops.Nodes) *Schedules {
	return &Schedules{Committer: c, groups: groups, instances: instances, nodes: nodes}
}

// ScheduleWrite creates, replaces or changes a schedule.
type ScheduleWrite struct {
	Name string
	// Update refuses to create a schedule.
	Update bool
	// Make returns the desired schedule. old is the present one, nil when the write creates it. The write
	// sets Name, Since, By and At.
	Make func(old *schedule.Schedule) (schedule.Schedule, error)
	// IfMatch is the required revision, Present or Absent; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
}

// ScheduleWritten is the result of a ScheduleWrite.
type ScheduleWritten struct {
	// Before is nil when the schedule was created.
	Before *schedule.Schedule
	// After is the schedule as written, or as a dry run would write it.
	After schedule.Schedule
}

// WriteSchedule creates, replaces or changes a schedule. A run in progress continues as it began, unless
// the schedule is turned off. Invalid names every wrong field, MovedError when IfMatch does not match,
// NotFound when Update does not hold, Exhausted when there are too many. It writes nothing when nothing
// changes.
func (o *Schedules) WriteSchedule(ctx context.Context, by txn.Actor, w ScheduleWrite) (out ScheduleWritten, err error) {
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		old, err := w.replaced(s)
		if err != nil {
			return txn.Change{}, err
		}
		next, err := w.Make(old)
		if err != nil {
			return txn.Change{}, err
		}
		next.Name, next.Rev = w.Name, record.Rev{}
		next.Since, next.By, next.At = o.Now(), by.User, o.Now()
		if err := txn.JoinProblems(o.scheduleProblems(next)); err != nil {
			return txn.Change{}, err
		}
		out = ScheduleWritten{Before: old, After: next}
		var present schedule.Schedule
		if old != nil {
			present = *old
			if sameTimes(present, next) {
				out.After.Since = present.Since
			}
			if SameSchedule(present, next) {
				out.After = present
				return txn.Change{}, nil
			}
		}
		if err := scheduleTarget(s, present, next); err != nil || w.DryRun {
			return txn.Change{}, err
		}
		c := txn.Change{
			Writes: []store.Write{store.Replace(keys.Schedule(w.Name), out.After, present.ModRev)},
			Audit:  txn.Entry{Action: "schedule.create", Resource: "schedule", ID: w.Name, Before: ScheduleRecord(old), After: ScheduleRecord(&out.After)},
		}
		if old != nil {
			c.Audit.Action = "schedule.update"
		}
		return c, nil
	})
	if err != nil || w.DryRun {
		return out, err
	}
	if s, ok := o.Snapshot().Schedules.Get(w.Name); ok {
		out.After = *s
	}
	return out, nil
}

// replaced returns the schedule that a write replaces, nil if it creates one.
func (w ScheduleWrite) replaced(s *view.Snapshot) (*schedule.Schedule, error) {
	if w.Update {
		if _, err := findSchedule(s, w.Name); err != nil {
			return nil, err
		}
	}
	old, present := s.Schedules.Get(w.Name)
	var rev int64
	if present {
		rev = old.ModRev
	}
	if err := txn.CheckRevision("schedule "+txn.Clip(w.Name), w.IfMatch, rev); err != nil {
		return nil, err
	}
	if !present && s.Schedules.Len() >= schedule.MaxSchedules {
		return nil, errs.New(errs.Exhausted, "there are %d schedules, the most there may be: delete one", schedule.MaxSchedules)
	}
	return old, nil
}

// scheduleProblems returns everything that is wrong with a schedule in itself.
func (o *Schedules) scheduleProblems(s schedule.Schedule) []error {
	problems := s.Validate()
	times, err := cron.Parse(s.Cron, s.Timezone)
	if err != nil {
		return append(problems, err)
	}
	shortest, jitter := timetable.Shortest(times, o.Now()), time.Duration(s.JitterSeconds)*time.Second
	switch {
	case jitter > shortest:
		return append(problems, errs.Field("jitterSeconds", "must be at most %d, the time between two runs", int(shortest/time.Second)))
	case s.Lead()+jitter >= shortest:
		return append(problems, errs.Field("warnings", "must begin less than %d seconds before the action, jitter included: the next run would begin before the one before has ended", int(shortest/time.Second)))
	}
	return problems
}

// scheduleTarget returns Invalid if a schedule begins to name a group, instance or node that does not exist.
func scheduleTarget(s *view.Snapshot, old, next schedule.Schedule) error {
	if next.Group != "" && next.Group != old.Group {
		if err := txn.GroupExists(s, "group", next.Group); err != nil {
			return err
		}
	}
	if next.Action == schedule.Backup && (old.Action != next.Action || old.Group != next.Group || old.Instance != next.Instance) {
		return keepsData(s, next)
	}
	if next.Instance != "" && next.Instance != old.Instance {
		if _, ok := s.Find(next.Instance); !ok {
			return errs.Field("instance", "names an instance that does not exist: %s", txn.Clip(next.Instance))
		}
	}
	if _, ok := s.Nodes.Get(next.Node); next.Node != "" && next.Node != old.Node && !ok {
		return errs.Field("node", "names a node that does not exist: %s", txn.Clip(string(next.Node)))
	}
	return nil
}

// keepsData returns Invalid if a schedule is to back up what has no directory of its own.
func keepsData(s *view.Snapshot, next schedule.Schedule) error {
	group, field := next.Group, "group"
	if next.Instance != "" {
		i, ok := s.Find(next.Instance)
		if !ok {
			return errs.Field("instance", "names an instance that does not exist: %s", txn.Clip(next.Instance))
		}
		group, field = i.Intent.Group, "instance"
	}
	if g, ok := s.Groups.Get(group); ok && !g.Spec.Static.Enabled {
		return errs.Field(field, "must be static for a backup: the directories of group %s are removed when a server ends", group)
	}
	return nil
}

// sameTimes reports whether two schedules are due at the same times.
func sameTimes(a, b schedule.Schedule) bool {
	return a.Cron == b.Cron && a.Timezone == b.Timezone && a.Enabled == b.Enabled
}

// SameSchedule reports whether two schedules have the same fields, except who wrote them and when.
func SameSchedule(a, b schedule.Schedule) bool {
	return sameTimes(a, b) && a.Description == b.Description && a.Group == b.Group && a.Instance == b.Instance && a.Node == b.Node && a.Action == b.Action && sameDrain(a.Drain, b.Drain) && sameBackup(a.Backup, b.Backup) &&
		a.Command == b.Command && a.Count == b.Count && slices.Equal(a.Warnings, b.Warnings) && a.JitterSeconds == b.JitterSeconds && a.Overlap == b.Overlap
}

func sameDrain(a, b *schedule.DrainSettings) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func sameBackup(a, b *schedule.BackupSettings) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}

// ScheduleRecord is what the audit keeps of a schedule.
func ScheduleRecord(s *schedule.Schedule) any {
	if s == nil {
		return nil
	}
	out := txn.ToMap(s)
	for _, field := range []string{"name", "by", "at", "since"} {
		delete(out, field)
	}
	return out
}

// DeleteSchedule removes a schedule with its past. A run in progress ends before its next step. NotFound
// when it does not exist, MovedError when ifMatch is not 0 and not its revision. With dryRun it only
// checks.
func (o *Schedules) DeleteSchedule(ctx context.Context, by txn.Actor, name string, ifMatch int64, dryRun bool) error {
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		old, err := findSchedule(s, name)
		if err == nil {
			err = txn.CheckRevision("schedule "+name, ifMatch, old.ModRev)
		}
		if err != nil || dryRun {
			return txn.Change{}, err
		}
		c := txn.Change{
			Writes: []store.Write{store.Remove(keys.Schedule(name), old.ModRev)},
			Audit:  txn.Entry{Action: "schedule.delete", Resource: "schedule", ID: name, Before: ScheduleRecord(old)},
		}
		if st, ok := s.ScheduleStates.Get(name); ok {
			c.Writes = append(c.Writes, store.Remove(keys.ScheduleState(name), st.ModRev))
		} else {
			c.Guards = append(c.Guards, store.Missing(keys.ScheduleState(name)))
		}
		c.DropApplied(s, applied.Schedule, name)
		return c, nil
	})
	return err
}

func findSchedule(s *view.Snapshot, name string) (*schedule.Schedule, error) {
	found, ok := s.Schedules.Get(name)
	if !ok {
		return nil, errs.New(errs.NotFound, "there is no schedule %s", txn.Clip(name))
	}
	return found, nil
}

// RunRequest asks for a run of a schedule.
type RunRequest struct {
	Name string
	// Warn sends the warnings first. The action then waits for as long as the first warning says.
	Warn bool
	// DryRun computes the steps and writes nothing.
	DryRun bool
}

// RunSchedule begins a run of a schedule now, even if the schedule is turned off. NotFound when it does
// not exist, Conflict while another run is in progress. A dry run has in each step the instances that it
// would act on now.
func (o *Schedules) RunSchedule(ctx context.Context, by txn.Actor, r RunRequest) (run schedule.Run, err error) {
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		sched, err := findSchedule(s, r.Name)
		if err != nil {
			return txn.Change{}, err
		}
		st := StateOf(s, r.Name)
		if st.Current != nil {
			return txn.Change{}, errs.New(errs.Conflict, "run %d of schedule %s is in progress: try again when it has ended", st.Current.Number, r.Name)
		}
		now, asked := o.Now(), *sched
		if !r.Warn {
			asked.Warnings = nil
		}
		run = timetable.NewRun(&asked, &st, now.Add(asked.Lead()), now)
		run.By = by.User
		if r.DryRun {
			in := Look(s)
			for n := range run.Steps {
				run.Steps[n].Targets, run.Steps[n].Message = timetable.Targets(in, &run, run.Steps[n])
			}
			return txn.Change{}, nil
		}
		next := st
		next.Name, next.Runs, next.Current = r.Name, run.Number, &run
		return txn.Change{
			Guards: []store.Guard{store.Unchanged(keys.Schedule(r.Name), sched.ModRev)},
			Writes: []store.Write{store.Replace(keys.ScheduleState(r.Name), next, st.ModRev)},
			Audit:  txn.Entry{Action: "schedule.run", Resource: "schedule", ID: r.Name, Details: string(sched.Action) + " " + sched.Target()},
		}, nil
	})
	return run, err
}

// StateOf returns the state of a schedule, zero before its first run.
func StateOf(s *view.Snapshot, name string) schedule.State {
	if st, ok := s.ScheduleStates.Get(name); ok {
		return *st
	}
	return schedule.State{}
}

// Look returns an Input with the instances of a snapshot.
func Look(s *view.Snapshot) timetable.Input {
	return timetable.Input{
		Find: s.Find, Deployments: s.Deployments,
		Node: func(id fleet.NodeID) (out []*fleet.Instance, ok bool) {
			_, ok = s.Nodes.Get(id)
			for i := range s.NodeInstances(id) {
				if i.Node() == id && i.Intent.ID != "" {
					out = append(out, i)
				}
			}
			return out, ok
		},
		Group: func(name fleet.GroupName) (out []*fleet.Instance, ok bool) {
			g, ok := s.Groups.Get(name)
			if !ok || g.Deleting {
				return nil, false
			}
			out = slices.SortedFunc(s.GroupInstances(name), func(a, b *fleet.Instance) int {
				return cmp.Or(cmp.Compare(a.Intent.Ordinal, b.Intent.Ordinal), cmp.Compare(a.Intent.ID, b.Intent.ID))
			})
			return out, true
		},
	}
}

// Act carries out a step of a run on one target. It returns what it did, in short.
func (o *Schedules) Act(ctx context.Context, name string, step schedule.Step, t schedule.Target) (done string, err error) {
	by := txn.Actor{User: Actor(name)}
	switch step.Action {
	case schedule.Command:
		_, err = o.instances.Command(ctx, by, string(t.ID), step.Command, "")
	case schedule.Stop:
		_, err = o.instances.StopInstance(ctx, by, string(t.ID), false)
	case schedule.Restart:
		return "", o.restart(ctx, by, t)
	case schedule.Backup:
		return o.instances.BackupDone(ctx, by, string(t.ID), *step.Backup)
	case schedule.Drain:
		asked := nodeops.NodeDrain{Node: fleet.NodeID(t.Name), TimeoutSeconds: step.Drain.TimeoutSeconds, Shutdown: step.Drain.Shutdown, KickMessage: step.Drain.KickMessage, MoveStatic: step.Drain.MoveStatic}
		_, err = o.nodes.Drain(ctx, by, asked)
	case schedule.Undrain:
		_, _, err = o.nodes.Undrain(ctx, by, fleet.NodeID(t.Name), false)
	case schedule.Start:
		if t.ID != "" {
			_, err = o.instances.StartInstance(ctx, by, string(t.ID))
			break
		}
		made, short, failed := o.instances.StartInstances(ctx, by, instanceops.StartRequest{Group: fleet.GroupName(t.Name), Count: step.Count})
		err = cmp.Or(failed, short)
		for n, i := range made {
			if n > 0 {
				done += ", "
			}
			done += i.Name
		}
		if done != "" {
			done = "started " + done
		}
	}
	return done, err
}

// restart restarts an instance, or begins the deployment that restarts a group.
func (o *Schedules) restart(ctx context.Context, by txn.Actor, t schedule.Target) error {
	if t.ID == "" {
		_, err := o.groups.Deploy(ctx, by, groupops.DeployRequest{Group: fleet.GroupName(t.Name), Trigger: deployment.TriggerRestart, After: &t.Generation})
		return err
	}
	_, err := o.instances.RestartInstance(ctx, by, string(t.ID))
	return err
}

// Actor is the name of a schedule in the audit. User names cannot contain the space.
func Actor(name string) string { return "schedule " + name }
