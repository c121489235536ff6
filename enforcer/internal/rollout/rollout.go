// Package rollout decides how a deployment continues: which instance of the group gets a
// replacement, retires or starts again next, and what to record. It is pure. Package plan carries
// the decisions out, so that one place counts the instances of a group.
//
// # Rules
//
//   - Only the latest deployment of a group is active. It ends as COMPLETED, FAILED, CANCELLED or
//     ROLLED_BACK.
//   - It replaces the instances with a lower number. Frozen ones and those on lost nodes stay.
//   - With a surge, a replacement starts in the place of an instance. The instance retires once the
//     replacement is healthy. Otherwise the instance retires first and starts again.
//   - At most Options.Parallel instances are being replaced. They are counted from what runs.
//   - A canary deployment replaces its first wave, and the others once that wave is healthy.
//   - A blue-green deployment starts replacements for all instances at once. They take no players
//     until all of them are healthy. Then they take players, and all originals retire.
//   - It fails when an instance of the first phase crashes, when the group is paused after crashes of
//     new instances, or when it comes no further in time. With a health gate it also fails when a new
//     instance crashes in a way in which the earlier ones did not. Time in which instances wait for their players to leave
//     does not count: their own deadlines end it.
//   - While it is paused, by a user or by maintenance, nothing new begins, and retiring instances
//     take players again.
//   - When it ends early, the originals stay, and their replacements stop once they are empty. If both
//     have players, the replacement retires.
package rollout

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Input is everything that Decide depends on. All functions are required.
type Input struct {
	// Deployments are those of the group, oldest first.
	Deployments []deployment.Joined
	// Instances are all instances of the group.
	Instances []*fleet.Instance
	// Maintenance is set while the group may start nothing because of maintenance.
	Maintenance bool
	// CrashPaused reports whether the group starts nothing because of crashes.
	CrashPaused func() bool
	// Crashes are the recorded crashes of all groups. The latest ones may be missing.
	Crashes iter.Seq[*reports.Crash]
	Plan    func(digest string) *fleet.Plan
	Players func(*fleet.Instance) int
	// TPS returns the ticks per second that an instance reported, 0 if it never did.
	TPS func(*fleet.Instance) float64
	// Moving reports whether an instance leaves its node for another reason: it is moved, or its node
	// is being drained.
	Moving func(*fleet.Instance) bool
}

// Kind is the kind of a step.
type Kind string

// The kinds of steps.
const (
	// Start starts a replacement in the place of Instance.
	Start Kind = "start"
	// Retire lets Instance become empty and then stop; with Again, its next generation follows.
	Retire Kind = "retire"
	// Keep ends the retirement of Instance.
	Keep Kind = "keep"
	// Renew starts the next generation of Instance, which waits for a node.
	Renew Kind = "renew"
	// Stop stops Instance, which has no players; with Again, its next generation follows.
	Stop Kind = "stop"
	// Admit lets Instance take players.
	Admit Kind = "admit"
)

// Step is one thing to do about an instance.
type Step struct {
	Kind     Kind
	Instance *fleet.Instance
	// Restores is the original that stays when a Stop ends its replacement, or nil.
	Restores *fleet.Instance
	Again    bool
	// Standby is set when a replacement takes no players until a later Admit.
	Standby bool
	Message string
}

// Decision is what to do now.
type Decision struct {
	Steps []Step
	// Progress is what to write where it differs from what is stored. The writer sets ChangedAt where
	// it is zero, and FinishedAt in final states.
	Progress []deployment.Progress
	// Delete are the numbers of deployments that are too old to keep.
	Delete []int64
	// Places are the places in which an original and its replacement count as one instance.
	Places map[string]bool
	// Wake is when to decide again if nothing changes before; zero for never.
	Wake time.Time
}

// Decide returns how the deployments of a group continue.
func Decide(in Input, now time.Time) Decision {
	w := &work{in: in, now: now, out: Decision{Places: map[string]bool{}}}
	all := in.Deployments
	if len(all) == 0 {
		return w.out
	}
	for _, j := range all[:max(0, len(all)-deployment.MaxHistory)] {
		w.out.Delete = append(w.out.Delete, j.Number)
	}
	for _, j := range all[len(w.out.Delete) : len(all)-1] {
		w.end(j)
	}
	w.latest(all[len(all)-1])
	return w.out
}

// Mixed returns the places that have an original and its replacement while the latest deployment
// has not completed. Decide resolves them.
func Mixed(in Input) map[string]bool {
	if len(in.Deployments) == 0 {
		return nil
	}
	w := &work{in: in, d: in.Deployments[len(in.Deployments)-1]}
	if w.d.State() == deployment.Completed {
		return nil
	}
	old, fresh := map[string]bool{}, map[string]bool{}
	for _, i := range in.Instances {
		switch {
		case !deployment.Replaceable(i):
		case w.current(i):
			if w.d.Active() || started(i) {
				fresh[i.Intent.Place()] = true
			}
		default:
			old[i.Intent.Place()] = true
		}
	}
	for place := range old {
		if !fresh[place] {
			delete(old, place)
		}
	}
	return old
}

// work decides about one group.
type work struct {
	in  Input
	now time.Time
	out Decision
	// d is the latest deployment, o its options.
	d deployment.Joined
	o deployment.Options
	// outdated are the instances to replace, in order. fresh are the living ones that are up to date.
	outdated []deployment.Step
	fresh    []*fleet.Instance
	// promoted is whether the first phase of the latest deployment is over.
	promoted bool
}

// end records the end of a deployment that users ended or that is not the latest.
func (w *work) end(j deployment.Joined) {
	next := stored(j)
	switch {
	case j.RolledBack && next.State != deployment.RolledBack:
		next.State, next.Reason, next.Message = deployment.RolledBack, deployment.ReasonRequested, "it was rolled back"
	case next.State.Final():
		return
	case j.Canceled:
		next.State, next.Reason, next.Message = deployment.Canceled, deployment.ReasonRequested, "it was canceled"
	default:
		next.State, next.Reason, next.Message = deployment.Failed, deployment.ReasonSuperseded, "a later deployment began"
	}
	next.ChangedAt = time.Time{}
	w.out.Progress = append(w.out.Progress, next)
}

func stored(j deployment.Joined) deployment.Progress {
	if j.Progress != nil {
		return *j.Progress
	}
	return deployment.Progress{Group: j.Group, Number: j.Number, State: deployment.InProgress}
}

func (w *work) latest(j deployment.Joined) {
	w.d, w.o = j, j.Options
	w.outdated = deployment.Steps(w.in.Instances, w.current, w.in.Players)
	for _, i := range w.in.Instances {
		if w.current(i) && living(i) {
			w.fresh = append(w.fresh, i)
		}
	}
	switch {
	case !j.Active():
		w.end(j)
		w.undo()
	default:
		w.advance()
	}
	w.admit()
	w.pair()
}

// current reports whether an instance is up to date.
func (w *work) current(i *fleet.Instance) bool {
	if i.Intent.Deployment >= w.d.Number {
		return true
	}
	if w.d.Restores == 0 {
		return false
	}
	at := slices.IndexFunc(w.in.Deployments, func(j deployment.Joined) bool { return j.Number == w.d.Restores })
	if at < 0 {
		return false
	}
	return w.d.Current(i, w.in.Plan(i.Intent.Plan), w.in.Deployments[at].Deployment)
}

func living(i *fleet.Instance) bool {
	return !i.Lost() && (i.Intent.RestartPending || i.Intent.Desired == fleet.DesiredRunning && !i.Terminal())
}

// advance continues an active deployment.
func (w *work) advance() {
	next := w.count()
	switch {
	case w.d.Paused:
		w.hold(&next, deployment.ReasonRequested, "a user paused it")
	case w.in.Maintenance:
		w.hold(&next, deployment.ReasonMaintenance, "the group is in maintenance")
	case w.failed(&next):
		w.undo()
	case w.complete(next):
		next.State, next.Reason = deployment.Completed, deployment.ReasonReplaced
		next.Message = fmt.Sprintf("%d instances were replaced", next.Total)
	default:
		next.State, next.Reason, next.Message = deployment.InProgress, "", ""
		w.replace(next)
	}
	if w.d.Progress != nil && next == *w.d.Progress {
		return
	}
	if w.forward(next) {
		next.ChangedAt = time.Time{}
	}
	w.out.Progress = append(w.out.Progress, next)
}

// forward reports whether the deployment has come further. Each of these numbers is bounded and
// never decreases, so it either ends or stalls.
func (w *work) forward(next deployment.Progress) bool {
	p := w.d.Progress
	return p == nil || next.State != p.State || next.Updated > p.Updated || next.Ready > p.Ready || next.Promoted != p.Promoted
}

// count returns the progress with the present numbers.
func (w *work) count() deployment.Progress {
	next := stored(w.d)
	if w.d.Progress == nil {
		next.Total = len(w.outdated)
	}
	next.Total = max(next.Total, next.Updated+len(w.outdated)) // an instance that started under an older deployment may appear late
	next.Updated = max(next.Updated, next.Total-len(w.outdated))
	ready := 0
	for _, i := range w.fresh {
		if w.healthy(i) {
			ready++
		}
	}
	next.Ready = max(next.Ready, ready)
	crashes := 0
	for _, i := range w.in.Instances {
		if i.Intent.Deployment < w.d.Number {
			continue
		}
		if _, failed := i.FailedAt(); failed {
			crashes++
		} else if i.Status != nil && i.Status.Generation >= i.Intent.Generation {
			crashes += i.Status.Restarts
		}
	}
	next.Failed = max(next.Failed, crashes)
	next.Promoted = next.Promoted || w.d.Promoted || w.passed(next.Total, ready)
	w.promoted = next.Promoted
	return next
}

// passed reports whether the first phase of the deployment is over because its instances are healthy.
func (w *work) passed(total, ready int) bool {
	switch w.d.Strategy {
	case deployment.Canary:
		return ready >= min(w.o.Wave(total), len(w.fresh)+w.alone(nil))
	case deployment.BlueGreen:
		return !slices.ContainsFunc(w.outdated, func(s deployment.Step) bool {
			p := w.partner(s.Instance)
			return p == nil || !w.healthy(p)
		})
	case deployment.Rolling:
	}
	return true
}

// healthy reports whether an instance could take players and has passed the health gate. It asks for
// another decision when only time is lacking.
func (w *work) healthy(i *fleet.Instance) bool {
	if i.State() != fleet.Online || i.Retiring() {
		return false
	}
	if !w.o.HealthGate {
		return true
	}
	if tps := w.in.TPS(i); tps > 0 && tps < w.o.MinHealthyTPS {
		return false
	}
	due := i.Status.ChangedAt.Add(w.o.Healthy())
	w.wakeAt(due)
	return !due.After(w.now)
}

func (w *work) wakeAt(t time.Time) {
	if t.After(w.now) && (w.out.Wake.IsZero() || t.Before(w.out.Wake)) {
		w.out.Wake = t
	}
}

// hold pauses the deployment. Instances that wait for their players to leave take players again.
func (w *work) hold(next *deployment.Progress, why deployment.Reason, message string) {
	next.State, next.Reason, next.Message = deployment.Paused, why, message
	for _, s := range w.outdated {
		w.keep(s.Instance)
	}
}

func (w *work) keep(i *fleet.Instance) bool {
	if !retires(i) {
		return false
	}
	w.step(Keep, i, "deployment %d does not continue now", w.d.Number)
	return true
}

// retires reports whether an instance retires because of a deployment.
func retires(i *fleet.Instance) bool {
	return i.Retiring() && i.Intent.Retire.Reason == fleet.ReasonDeployment
}

func (w *work) step(kind Kind, i *fleet.Instance, format string, args ...any) *Step {
	w.out.Steps = append(w.out.Steps, Step{Kind: kind, Instance: i, Message: fmt.Sprintf(format, args...)})
	return &w.out.Steps[len(w.out.Steps)-1]
}

// failed reports whether the deployment fails, and why in next.
func (w *work) failed(next *deployment.Progress) bool {
	crash := w.novel()
	switch {
	case next.Failed > 0 && !next.Promoted && w.d.Strategy == deployment.BlueGreen:
		next.Reason, next.Message = deployment.ReasonCrashes, "a replacement crashed or did not start before all were healthy"
	case next.Failed > 0 && !next.Promoted:
		next.Reason, next.Message = deployment.ReasonCrashes, "a canary crashed or did not start"
	case crash != nil:
		next.Reason = deployment.ReasonCrashes
		next.Message = fmt.Sprintf("%s crashed in a way in which no earlier instance did: %s", crash.Name, validate.ClipMessage(cmp.Or(crash.Cause, string(crash.Category)), maxObstacle))
	case next.Failed > 0 && w.in.CrashPaused():
		next.Reason, next.Message = deployment.ReasonCrashes, "the group is paused after crashes, and new instances crashed"
	case w.stalled(*next):
		next.Reason = deployment.ReasonTimeout
		next.Message = fmt.Sprintf("it did not come further within %v: %s", w.o.Stall(), w.obstacle())
	default:
		return false
	}
	next.State = deployment.Failed
	return true
}

// novel returns a crash of a new instance whose fingerprint differs from those of all crashes of the
// group's earlier instances, or nil. It returns nil without a health gate.
func (w *work) novel() *reports.Crash {
	if !w.o.HealthGate {
		return nil
	}
	made := map[fleet.InstanceID]int64{} // the generations that the deployment made
	for _, i := range w.in.Instances {
		if i.Intent.Deployment >= w.d.Number {
			made[i.Intent.ID] = i.Intent.Generation
		}
	}
	known, own := map[string]bool{}, []*reports.Crash(nil)
	for c := range w.in.Crashes {
		generation, ok := made[c.Instance]
		switch {
		case c.Group != w.d.Group:
		case ok && c.Generation >= generation:
			own = append(own, c)
		default:
			known[c.Fingerprint] = true
		}
	}
	for _, c := range own {
		if !known[c.Fingerprint] {
			return c
		}
	}
	return nil
}

// stalled reports whether the deployment came no further in time.
func (w *work) stalled(next deployment.Progress) bool {
	p := w.d.Progress
	if p == nil || p.State != deployment.InProgress || w.forward(next) {
		return false
	}
	if slices.ContainsFunc(w.outdated, func(s deployment.Step) bool { return s.Instance.Retiring() }) {
		return false
	}
	due := p.ChangedAt.Add(w.o.Stall())
	w.wakeAt(due)
	return !due.After(w.now)
}

// maxObstacle bounds the text about an instance that is not ready, in bytes.
const maxObstacle = 300

// obstacle says what the deployment waits for.
func (w *work) obstacle() string {
	for _, i := range w.fresh {
		if w.healthy(i) {
			continue
		}
		why := "it has not been healthy long enough"
		if tps := w.in.TPS(i); i.State() == fleet.Online && tps > 0 && tps < w.o.MinHealthyTPS {
			why = fmt.Sprintf("it reports %.1f ticks per second, below %.1f", tps, w.o.MinHealthyTPS)
		} else if i.State() != fleet.Online {
			_, why = i.Why()
		}
		return fmt.Sprintf("%s is not ready: %s", i.Intent.Name, validate.ClipMessage(why, maxObstacle))
	}
	return "no replacement could start"
}

// complete reports whether all instances are replaced and their successors are ready.
func (w *work) complete(next deployment.Progress) bool {
	return len(w.outdated) == 0 && next.Promoted && (!w.o.StopsFirst() || w.unsettled() == 0)
}

// unsettled counts the instances that are up to date and awake, but not healthy.
func (w *work) unsettled() int {
	n := 0
	for _, i := range w.in.Instances {
		if w.current(i) && !i.Intent.Frozen && !i.Asleep() && (living(i) && !w.healthy(i) || i.EndedUnasked() && i.Intent.ReplacedBy == "") {
			n++
		}
	}
	return n
}

// partner returns the living instance that is up to date in the place of i, or nil.
func (w *work) partner(i *fleet.Instance) *fleet.Instance {
	for _, other := range w.fresh {
		if other.Intent.Place() == i.Intent.Place() && other != i {
			return other
		}
	}
	return nil
}

// replace takes the next steps.
func (w *work) replace(next deployment.Progress) {
	for _, i := range w.fresh { // an earlier deployment let it retire
		w.keep(i)
	}
	slots := w.slots(next)
	for _, s := range w.outdated {
		i := s.Instance
		if i.Retiring() || i.Intent.RestartPending || w.in.Moving(i) {
			continue
		}
		if p := w.partner(i); p != nil {
			if w.healthy(p) && (next.Promoted || w.d.Strategy != deployment.BlueGreen) {
				w.step(Retire, i, "deployment %d: %s takes its place", w.d.Number, p.Intent.Name)
			}
			continue
		}
		if slots <= 0 {
			continue
		}
		slots--
		switch {
		case w.d.Strategy == deployment.BlueGreen && !next.Promoted:
			w.step(Start, i, "deployment %d replaces %s", w.d.Number, i.Intent.Name).Standby = true
		case i.NeedsPlacement() && !i.HoldsNode():
			w.step(Renew, i, "deployment %d", w.d.Number)
		case i.State() != fleet.Online:
			w.step(Stop, i, "deployment %d starts it again, because %s", w.d.Number, s.Reason).Again = true
		case w.o.StopsFirst():
			w.step(Retire, i, "deployment %d starts it again", w.d.Number).Again = true
		default:
			w.step(Start, i, "deployment %d replaces %s", w.d.Number, i.Intent.Name)
		}
	}
}

// alone counts the outdated instances without a partner; which selects some of them, and nil all.
func (w *work) alone(which func(*fleet.Instance) bool) int {
	n := 0
	for _, s := range w.outdated {
		if w.partner(s.Instance) == nil && (which == nil || which(s.Instance)) {
			n++
		}
	}
	return n
}

// slots returns how many more instances may be replaced at the same time.
func (w *work) slots(next deployment.Progress) int {
	busy := 0
	for _, s := range w.outdated {
		if i := s.Instance; i.Retiring() || i.Intent.RestartPending || w.partner(i) != nil {
			busy++
		}
	}
	slots := w.o.Parallel() - busy
	if w.o.StopsFirst() {
		slots -= w.unsettled()
	}
	if !next.Promoted && w.d.Strategy == deployment.Canary {
		begun := func(i *fleet.Instance) bool { return i.Retiring() || i.Intent.RestartPending }
		slots = min(slots, w.o.Wave(next.Total)-len(w.fresh)-w.alone(begun))
	}
	return slots
}

// started reports whether an instance was started by a deployment.
func started(i *fleet.Instance) bool { return i.Intent.Reason == fleet.ReasonDeployment }

// undo lets the originals stay after a deployment that did not complete, and stops their
// replacements.
func (w *work) undo() {
	if w.d.State() == deployment.Completed {
		return
	}
	for _, s := range w.outdated {
		i := s.Instance
		p := w.partner(i)
		switch {
		case w.keep(i) || p == nil || !started(p) || w.in.Moving(i) || i.Retiring() || p.Retiring() || i.Intent.RestartPending || p.Intent.RestartPending:
		case w.in.Players(p) == 0 && (i.State() == fleet.Online || i.Asleep() || p.State() != fleet.Online):
			w.step(Stop, p, "deployment %d ended, and %s stays", w.d.Number, i.Intent.Name).Restores = i
		case w.in.Players(i) == 0 && p.State() == fleet.Online:
			w.step(Stop, i, "deployment %d ended, and %s has players", w.d.Number, p.Intent.Name)
		case i.State() == fleet.Online && p.State() == fleet.Online: // both have players
			w.step(Retire, p, "deployment %d ended, and %s stays", w.d.Number, i.Intent.Name)
		}
	}
}

// admit lets instances take players that the switch of a blue-green deployment waited for: once it is
// promoted, or when they are the only ones in their place.
func (w *work) admit() {
	alone := func(i *fleet.Instance) bool {
		return !slices.ContainsFunc(w.in.Instances, func(other *fleet.Instance) bool {
			return other != i && living(other) && other.Intent.Place() == i.Intent.Place()
		})
	}
	for _, i := range w.in.Instances {
		if i.Intent.Standby && living(i) && (w.promoted && w.current(i) || alone(i)) {
			w.step(Admit, i, "deployment %d: it takes over", w.d.Number)
		}
	}
}

// pair notes the places with an original and its replacement.
func (w *work) pair() {
	for _, s := range w.outdated {
		if w.partner(s.Instance) != nil {
			w.out.Places[s.Instance.Intent.Place()] = true
		}
	}
}
