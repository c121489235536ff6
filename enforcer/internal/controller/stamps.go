package controller

import (
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// clockTolerance is the difference between a written time and the time it is seen that
// needs no correction.
const clockTolerance = time.Second

// stamps translates times that other processes wrote to this process's clock, so that no
// host's clock decides how old something is. A time written while this process watches is
// translated to the moment at which the write is seen. stamps stores a time only where the
// two differ.
//
// Times from before the first list are taken as written, but never later than that list.
// Times that start a deadline count from the first list, because a late deadline is
// harmless and an early one is not.
type stamps struct {
	mu sync.Mutex
	// rev is the revision up to which all changes have been seen.
	rev   int64
	known map[stampKey]stamp
}

// stampKey identifies one time of one record.
type stampKey struct {
	name stampName
	id   string
}

// stampName names one time of one kind of record.
type stampName string

const (
	stampStatus     stampName = "status"
	stampGeneration stampName = "generation"
	stampCreated    stampName = "created"
	stampStop       stampName = "stop"
	stampRetire     stampName = "retire"
	stampPlacement  stampName = "placement"
	stampOrder      stampName = "order"
	stampUpdated    stampName = "updated"
	stampReset      stampName = "reset"
	stampScaled     stampName = "scaled"
	stampLoop       stampName = "loop"
	stampScaling    stampName = "scaling"
	stampCrash      stampName = "crash"
	stampEviction   stampName = "eviction"
	stampSession    stampName = "session"
	stampPlan       stampName = "plan"
	stampDrain      stampName = "drain"
	stampProgress   stampName = "progress"
	stampMove       stampName = "move"
	stampCopy       stampName = "copy"
)

// deadline reports whether something is deleted or killed a fixed time after this one.
func (n stampName) deadline() bool {
	return n == stampEviction || n == stampSession || n == stampPlan || n == stampRetire || n == stampDrain || n == stampProgress || n == stampMove || n == stampCopy
}

// stamp is a time as written, and the same moment in this process's clock.
type stamp struct{ written, local time.Time }

func newStamps() *stamps { return &stamps{known: map[stampKey]stamp{}} }

// heard processes a batch.
func (st *stamps) heard(b *view.Batch, now time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	first := st.rev == 0
	st.rev = b.After.Rev
	for i := range b.Changes {
		ch := &b.Changes[i]
		before := map[stampName]time.Time{}
		for name, at := range timesOf(ch, ch.Before) {
			before[name] = at
		}
		for name, at := range timesOf(ch, ch.After) {
			if was, ok := before[name]; !ok || !was.Equal(at) {
				st.note(stampKey{name, idOf(ch)}, at, now, first)
			}
			delete(before, name)
		}
		for name := range before {
			delete(st.known, stampKey{name, idOf(ch)})
		}
	}
}

// note stores when a time was written, if that differs from the time itself.
func (st *stamps) note(k stampKey, written, now time.Time, first bool) {
	late := now.Sub(written)
	exact := late <= clockTolerance && late >= -clockTolerance
	if first {
		exact = late >= 0
	}
	if exact && !k.name.deadline() {
		delete(st.known, k)
		return
	}
	st.known[k] = stamp{written, now}
}

// local translates a record's time to this process's clock. A record newer than the
// processed changes was written just now.
func (st *stamps) local(k stampKey, written time.Time, modRev int64, now time.Time) time.Time {
	if written.IsZero() {
		return written
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if s, ok := st.known[k]; ok && s.written.Equal(written) {
		return s.local
	}
	if modRev > st.rev {
		return now
	}
	return written
}

// idOf returns the last element of a record's key. The records of a deployment are identified by
// their whole key.
func idOf(ch *view.Change) string {
	if ch.Kind == view.KindProgress {
		return strings.Join(ch.Key, "/")
	}
	return ch.Key[len(ch.Key)-1]
}

// timesOf returns the times of a record that a plan depends on.
func timesOf(ch *view.Change, record any) iter.Seq2[stampName, time.Time] {
	return func(yield func(stampName, time.Time) bool) {
		each := func(name stampName, at time.Time) bool { return at.IsZero() || yield(name, at) }
		switch r := record.(type) {
		case *fleet.Status:
			each(stampStatus, r.ChangedAt)
		case *fleet.Intent:
			if !each(stampGeneration, r.GenerationAt) || !each(stampCreated, r.CreatedAt) || r.Stop != nil && !each(stampStop, r.Stop.At) {
				return
			}
			if r.Retire != nil {
				each(stampRetire, r.Retire.At)
			}
		case *fleet.Placement:
			each(stampPlacement, r.PlacedAt)
		case *fleet.Order:
			each(stampOrder, r.At)
		case *fleet.Group:
			_ = each(stampUpdated, r.UpdatedAt) && each(stampReset, r.CrashesResetAt) && each(stampScaled, r.ScaledAt)
		case *crashloop.Loop:
			each(stampLoop, r.PausedAt)
		case *scaling.Decision:
			each(stampScaling, r.At)
		case *reports.Crash:
			each(stampCrash, r.At)
		case *fleet.Eviction:
			each(stampEviction, r.At)
		case *fleet.StoredPlan:
			each(stampPlan, r.TouchedAt)
		case *move.Move:
			each(stampMove, r.StepAt)
		case *move.Copy:
			each(stampCopy, r.At)
		case *deployment.Progress:
			each(stampProgress, r.ChangedAt)
		case *fleet.NodeSession:
			each(stampSession, r.StartedAt)
		case *fleet.NodeDesired:
			if r.Drain != nil {
				each(stampDrain, r.Drain.At)
			}
		}
	}
}

// shifts are the corrections for the times of an instance's records.
type shifts struct{ created, generation, stop, retire, placement, order, status time.Duration }

func (st *stamps) shiftsOf(i *fleet.Instance, now time.Time) (by shifts) {
	id := string(i.Intent.ID)
	by.created = st.shift(stampKey{stampCreated, id}, i.Intent.CreatedAt, i.Intent.ModRev, now)
	by.generation = st.shift(stampKey{stampGeneration, id}, i.Intent.GenerationAt, i.Intent.ModRev, now)
	if s := i.Intent.Stop; s != nil {
		by.stop = st.shift(stampKey{stampStop, id}, s.At, i.Intent.ModRev, now)
	}
	if r := i.Intent.Retire; r != nil {
		by.retire = st.shift(stampKey{stampRetire, id}, r.At, i.Intent.ModRev, now)
	}
	if p := i.Placement; p != nil {
		by.placement = st.shift(stampKey{stampPlacement, id}, p.PlacedAt, p.ModRev, now)
	}
	if o := i.Order; o != nil {
		by.order = st.shift(stampKey{stampOrder, id}, o.At, o.ModRev, now)
	}
	if s := i.Status; s != nil {
		by.status = st.shift(stampKey{stampStatus, id}, s.ChangedAt, s.ModRev, now)
	}
	return by
}

// shift returns the correction for a record's time.
func (st *stamps) shift(k stampKey, written time.Time, modRev int64, now time.Time) time.Duration {
	return st.local(k, written, modRev, now).Sub(written)
}

// instance returns an instance with its times in this process's clock. It returns i itself,
// without a copy, when no time changes.
func (st *stamps) instance(i *fleet.Instance, now time.Time) *fleet.Instance {
	by := st.shiftsOf(i, now)
	if by == (shifts{}) {
		return i
	}
	out := *i
	out.Intent.CreatedAt = i.Intent.CreatedAt.Add(by.created)
	if by.generation != 0 {
		out.Intent.GenerationAt = i.Intent.GenerationAt.Add(by.generation)
		out.Intent.Crashes = shifted(i.Intent.Crashes, by.generation)
	}
	if by.stop != 0 {
		stop := *i.Intent.Stop
		stop.At = stop.At.Add(by.stop)
		out.Intent.Stop = &stop
	}
	if by.retire != 0 {
		retire := *i.Intent.Retire
		retire.At = retire.At.Add(by.retire)
		out.Intent.Retire = &retire
	}
	if by.placement != 0 {
		placement := *i.Placement
		placement.PlacedAt = placement.PlacedAt.Add(by.placement)
		out.Placement = &placement
	}
	if by.order != 0 {
		order := *i.Order
		order.At = order.At.Add(by.order)
		out.Order = &order
	}
	if by.status != 0 {
		out.Status = shiftedStatus(i.Status, by.status)
	}
	return &out
}

// shiftedStatus returns a status with all times shifted, because they are of the same
// clock.
func shiftedStatus(s *fleet.Status, by time.Duration) *fleet.Status {
	out := *s
	for _, at := range []*time.Time{&out.ChangedAt, &out.StartedAt, &out.FinishedAt} {
		if !at.IsZero() {
			*at = at.Add(by)
		}
	}
	out.Crashes = shifted(s.Crashes, by)
	return &out
}

func shifted(all []time.Time, by time.Duration) []time.Time {
	out := slices.Clone(all)
	for n := range out {
		out[n] = out[n].Add(by)
	}
	return out
}

// group returns a group with its times in this process's clock.
func (st *stamps) group(g *fleet.Group, now time.Time) *fleet.Group {
	out := *g
	by := func(name stampName, at *time.Time) bool {
		written := *at
		*at = st.local(stampKey{name, string(g.Name)}, written, g.ModRev, now)
		return !at.Equal(written)
	}
	updated, reset, scaled := by(stampUpdated, &out.UpdatedAt), by(stampReset, &out.CrashesResetAt), by(stampScaled, &out.ScaledAt)
	if !updated && !reset && !scaled {
		return g
	}
	return &out
}

// loop returns a crash loop with its times in this process's clock; nil for none.
func (st *stamps) loop(l *crashloop.Loop, now time.Time) *crashloop.Loop {
	if l == nil {
		return nil
	}
	shift := st.local(stampKey{stampLoop, string(l.Group)}, l.PausedAt, l.ModRev, now).Sub(l.PausedAt)
	if shift == 0 {
		return l
	}
	out := shiftedLoop(*l, shift)
	return &out
}

func shiftedLoop(l crashloop.Loop, by time.Duration) crashloop.Loop {
	l.Since, l.PausedAt, l.PausedUntil = l.Since.Add(by), l.PausedAt.Add(by), l.PausedUntil.Add(by)
	return l
}

// scaling returns a scaling decision with its time in this process's clock, and without a target if
// its group has been scaled explicitly since; nil for none.
func (st *stamps) scaling(s *view.Snapshot, d *scaling.Decision, now time.Time) *scaling.Decision {
	if d == nil {
		return nil
	}
	out := *d
	out.At, out.Target = st.local(stampKey{stampScaling, string(d.Group)}, d.At, d.ModRev, now), 0
	if g, ok := s.Groups.Get(d.Group); ok {
		out.Target = d.TargetFor(g)
	}
	return &out
}

// crash returns a recorded crash with its time in this process's clock.
func (st *stamps) crash(c *reports.Crash, now time.Time) *reports.Crash {
	at := st.local(stampKey{stampCrash, c.ID}, c.At, c.ModRev, now)
	if at.Equal(c.At) {
		return c
	}
	out := *c
	out.At = at
	return &out
}

// crashes returns recorded crashes with their times in this process's clock.
func (st *stamps) crashes(all iter.Seq2[string, *reports.Crash], now time.Time) iter.Seq2[string, *reports.Crash] {
	return func(yield func(string, *reports.Crash) bool) {
		for id, c := range all {
			if !yield(id, st.crash(c, now)) {
				return
			}
		}
	}
}

// plans returns stored plans with their times in this process's clock.
func (st *stamps) plans(all iter.Seq2[string, *fleet.StoredPlan], now time.Time) iter.Seq2[string, *fleet.StoredPlan] {
	return func(yield func(string, *fleet.StoredPlan) bool) {
		for digest, p := range all {
			out := *p
			out.TouchedAt = st.local(stampKey{stampPlan, digest}, p.TouchedAt, p.ModRev, now)
			if !yield(digest, &out) {
				return
			}
		}
	}
}

// eviction returns an eviction with its time in this process's clock; nil for none.
func (st *stamps) eviction(e *fleet.Eviction, now time.Time) *fleet.Eviction {
	if e == nil {
		return nil
	}
	out := *e
	out.At = st.local(stampKey{stampEviction, string(e.Instance)}, e.At, e.ModRev, now)
	return &out
}

// deployments returns deployments with the times of their progress in this process's clock.
func (st *stamps) deployments(all []deployment.Joined, now time.Time) []deployment.Joined {
	for n, d := range all {
		if d.Progress == nil {
			continue
		}
		out := *d.Progress
		out.ChangedAt = st.local(stampKey{stampProgress, keys.DeploymentName(d.Group, d.Number)}, out.ChangedAt, out.ModRev, now)
		all[n].Progress = &out
	}
	return all
}

// session returns a node's session with its time in this process's clock; nil for none.
func (st *stamps) session(s *fleet.NodeSession, now time.Time) *fleet.NodeSession {
	if s == nil {
		return nil
	}
	out := *s
	out.StartedAt = st.local(stampKey{stampSession, string(s.Node)}, s.StartedAt, s.ModRev, now)
	return &out
}

// drain returns a node's drain with its time in this process's clock; nil for none.
func (st *stamps) drain(d *fleet.NodeDesired, now time.Time) *fleet.NodeDrain {
	if d == nil || d.Drain == nil {
		return nil
	}
	out := *d.Drain
	out.At = st.local(stampKey{stampDrain, string(d.Node)}, out.At, d.ModRev, now)
	return &out
}

// asWritten replaces the translated records in actions by the stored ones, because writes
// are derived from them. Crash times that the writes keep are converted to the wall clock,
// which is ahead of this process's clock by ahead.
func (t *task) asWritten(actions []plan.Action, ahead time.Duration) {
	if ahead.Abs() <= clockTolerance {
		ahead = 0
	}
	original := func(i *fleet.Instance) *fleet.Instance {
		if i == nil {
			return nil
		}
		if have, ok := t.snap.Instances.Get(i.Intent.ID); ok {
			return have
		}
		return i
	}
	for n := range actions {
		a := &actions[n]
		planned := a.Instance
		a.Instance, a.Replaces, a.Restores = original(a.Instance), original(a.Replaces), original(a.Restores)
		if a.Kind == plan.SetCrashLoop {
			a.Loop = shiftedLoop(a.Loop, ahead)
		}
		if a.Kind == plan.Restart && planned.Status != nil && planned != a.Instance {
			next := *a.Instance
			next.Status = shiftedStatus(planned.Status, ahead)
			a.Instance = &next
		}
	}
}
