package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

// at returns a time relative to the base time of the tests.
func at(d time.Duration) time.Time {
	return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC).Add(d)
}

// sim holds a group's records and applies actions to them as the store would. It does
// nothing in place of agents and schedulers.
type sim struct {
	group     *fleet.Group
	ancestors []*fleet.Group
	instances []*fleet.Instance
	loop      *crashloop.Loop
	sessions  map[fleet.NodeID]*fleet.NodeSession
	plans     map[string]*fleet.Plan
	players   map[fleet.InstanceID]int
	tps       map[fleet.InstanceID]float64
	// emptySince is when the last player left any instance without players.
	emptySince time.Time
	// silent means that no instance reports its players.
	silent    bool
	scaled    *scaling.Decision
	rules     []scaling.Rule
	lostSince time.Time // of nodes without a session
	joined    int64     // the revision of all nodes' records
	released  map[fleet.NodeID]bool
	deleted   map[fleet.NodeID]bool
	drains    map[fleet.NodeID]*fleet.NodeDrain
	moves     map[fleet.InstanceID]*move.Move
	copies    map[fleet.InstanceID]*move.Copy
	evictions map[fleet.InstanceID]*fleet.Eviction
	waiting   map[fleet.InstanceID]bool // of other groups
	outage    Outage
	unmet     bool
	// deployments are those of the group, oldest first.
	deployments []deployment.Joined
	// recorded are the recorded crashes of all groups.
	recorded []*reports.Crash
	// maintenance is that of all groups.
	maintenance bool
	limits      Limits
	made        int
	// republished means that all templates have newer versions.
	republished bool
}

// ttl is the TTL of all sessions. The margin and the wait for further losses are a third of
// it.
const ttl = 6 * time.Second

// highest is the priority of the groups that preempt others.
const highest = 50

const (
	alive fleet.NodeID = "alive"
	lost  fleet.NodeID = "lost"
)

func newSim() *sim {
	g := &fleet.Group{Name: "g", Revision: 1, CreatedAt: at(-24 * time.Hour), UpdatedAt: at(-24 * time.Hour), Spec: fleet.DefaultSpec()}
	p := compose.Compose(*g, compose.Materials{}, 0)
	return &sim{
		group:    g,
		sessions: map[fleet.NodeID]*fleet.NodeSession{alive: {Rev: record.Rev{CreateRev: 10}, Node: alive, StartedAt: at(-24 * time.Hour)}},
		plans:    map[string]*fleet.Plan{"plan": &p},
		players:  map[fleet.InstanceID]int{},
		tps:      map[fleet.InstanceID]float64{},
		limits:   DefaultLimits(),
		deleted:  map[fleet.NodeID]bool{},
		released: map[fleet.NodeID]bool{},
		drains:   map[fleet.NodeID]*fleet.NodeDrain{},
		moves:    map[fleet.InstanceID]*move.Move{}, copies: map[fleet.InstanceID]*move.Copy{},

		evictions: map[fleet.InstanceID]*fleet.Eviction{}, waiting: map[fleet.InstanceID]bool{},
		// long enough for everything
		lostSince: at(-time.Hour), outage: Outage{Nodes: 2, Lost: 1},
	}
}

func (s *sim) input() Input {
	return Input{
		Group: s.group, Ancestors: s.ancestors, Instances: s.instances, CrashLoop: s.loop, Limits: s.limits, Maintenance: s.maintenance, Unmet: s.unmet,
		Deployments: s.deployments,
		Session:     func(n fleet.NodeID) *fleet.NodeSession { return s.sessions[n] },
		Plan:        func(d string) *fleet.Plan { return s.plans[d] },
		Republished: func(string) bool { return s.republished },
		Players:     func(i *fleet.Instance) int { return s.players[i.Intent.ID] },
		Scaled:      s.scaled,
		Rules:       s.rules,
		Figures: func(i *fleet.Instance) reports.InstanceReport {
			return reports.InstanceReport{TPS: s.tps[i.Intent.ID], PlayersKnown: !s.silent}
		},
		EmptySince: func(*fleet.Instance) time.Time { return s.emptySince },
		LostSince: func(n fleet.NodeID) time.Time {
			if s.sessions[n] != nil {
				return time.Time{}
			}
			return s.lostSince
		},
		TTL:       func(fleet.NodeID) time.Duration { return ttl },
		Joined:    func(fleet.NodeID) int64 { return s.joined },
		Released:  func(n fleet.NodeID) bool { return s.released[n] },
		Deleted:   func(n fleet.NodeID) bool { return s.deleted[n] },
		Drain:     func(n fleet.NodeID) *fleet.NodeDrain { return s.drains[n] },
		Move:      func(id fleet.InstanceID) (*move.Move, *move.Copy) { return s.moves[id], s.copies[id] },
		Gone:      func(n fleet.NodeID, _ string) bool { return s.deleted[n] },
		Outage:    s.outage,
		Crashes:   func(yield func(*reports.Crash) bool) { slices.Values(s.recorded)(yield) },
		Elsewhere: func(fleet.NodeID) bool { return false },

		Eviction: func(id fleet.InstanceID) *fleet.Eviction { return s.evictions[id] },
		Waits:    func(id fleet.InstanceID) bool { return s.waiting[id] },
		Outranks: func(_ fleet.InstanceID, priority int) bool { return priority < highest },
	}
}

// called gives an instance a fixed name.
func called(name string) func(*fleet.Instance) {
	return func(i *fleet.Instance) { i.Intent.Name = name }
}

// add adds an instance that should run and is not placed, after edits.
func (s *sim) add(edits ...func(*fleet.Instance)) *fleet.Instance {
	s.made++
	created := at(-time.Hour).Add(time.Duration(s.made) * time.Second)
	i := &fleet.Instance{Intent: fleet.Intent{
		ID: fleet.InstanceID(fmt.Sprintf("i%05d", s.made)), Name: fleet.InstanceName("g", s.made), Group: "g", Ordinal: s.made,
		GroupRevision: 1, Plan: "plan", Desired: fleet.DesiredRunning, Generation: 1, GenerationAt: created, CreatedAt: created,
		Origin: fleet.OriginMinimum, Reason: fleet.ReasonBelowMinimum,
	}}
	for _, edit := range edits {
		edit(i)
	}
	s.instances = append(s.instances, i)
	return i
}

func manual(i *fleet.Instance) { i.Intent.Origin = fleet.OriginManual }

func createdAt(t time.Time) func(*fleet.Instance) {
	return func(i *fleet.Instance) { i.Intent.CreatedAt, i.Intent.GenerationAt = t, t }
}

// in places an instance and gives it a status.
func in(n fleet.NodeID, state fleet.State, why fleet.Reason, when time.Time) func(*fleet.Instance) {
	return func(i *fleet.Instance) {
		placedOn(n, when)(i)
		i.Status = &fleet.Status{
			Instance: i.Intent.ID, Node: n, Generation: i.Intent.Generation, Epoch: 10, State: state, Reason: why, ChangedAt: when,
		}
		if state.Terminal() {
			i.Status.FinishedAt = when
		}
	}
}

func placedOn(n fleet.NodeID, when time.Time) func(*fleet.Instance) {
	return func(i *fleet.Instance) {
		i.Placement = &fleet.Placement{Instance: i.Intent.ID, Node: n, Generation: i.Intent.Generation, Plan: i.Intent.Plan, PlacedAt: when}
	}
}

func online(i *fleet.Instance) { in(alive, fleet.Online, fleet.ReasonReady, at(-time.Hour))(i) }

func crashed(when time.Time) func(*fleet.Instance) {
	return in(alive, fleet.Crashed, fleet.ReasonExited, when)
}

func wantsStop(force bool) func(*fleet.Instance) {
	return func(i *fleet.Instance) {
		i.Intent.Desired = fleet.DesiredStopped
		i.Intent.Stop = &fleet.StopRequest{Force: force, At: at(-time.Minute), By: "alice", Reason: fleet.ReasonStopRequested}
	}
}

func ordered(a fleet.OrderAction, when time.Time) func(*fleet.Instance) {
	return func(i *fleet.Instance) {
		i.Order = &fleet.Order{Instance: i.Intent.ID, Node: i.Placement.Node, Generation: i.Placement.Generation, Action: a, At: when}
	}
}

// evicted requests the eviction of an instance.
// retires sets a retirement that began at a time and ends within ten minutes.
func retires(since time.Time) func(*fleet.Instance) {
	return func(i *fleet.Instance) {
		i.Intent.Retire = &fleet.Retirement{At: since, Reason: fleet.ReasonRebalanced, DeadlineSeconds: 600}
	}
}

func evicted(why fleet.Reason) func(*sim, *fleet.Instance) {
	return func(s *sim, i *fleet.Instance) {
		e := &fleet.Eviction{Instance: i.Intent.ID, Generation: i.Intent.Generation, Node: i.Placement.Node, Reason: why, Message: "because", At: at(-time.Second)}
		if why == fleet.ReasonPreempted {
			e.For, s.waiting["x"] = "x", true
		}
		s.evictions[i.Intent.ID] = e
	}
}

// apply performs the actions on the records.
func (s *sim) apply(actions []Action, now time.Time) {
	for _, a := range actions {
		switch a.Kind {
		case Create:
			i := s.add(createdAt(now))
			i.Intent.Origin, i.Intent.Reason, i.Intent.Deployment = a.Origin, a.Reason, s.number()
			i.Intent.Standby, i.Intent.Warm = a.Standby, a.Warm
			if a.Replaces != nil {
				i.Intent.Replaces, i.Intent.Lineage = a.Replaces.Intent.ID, a.Replaces.Intent.Place()
				s.edit(a.Replaces, func(old *fleet.Instance) {
					old.Intent.ReplacedBy, old.Intent.Displaced = i.Intent.ID, old.Lost()
				})
			}
		case Restart:
			s.edit(a.Instance, func(i *fleet.Instance) {
				i.Intent.Crashes = a.Instance.CrashesOf(s.group.Revision)
				i.Intent.Lineage = a.Instance.Intent.NextLineage()
				i.Intent.Leaves, i.Intent.ReplacedBy, i.Intent.Displaced = 0, "", false
				if i.Lost() || i.Stranded() {
					i.Intent.Leaves, i.Intent.LeavesNode = i.Status.ModRev, s.joined
				}
				i.Intent.MovesTo = i.Moved()
				i.Intent.Generation++
				i.Intent.GenerationAt = now
				i.Intent.GroupRevision, i.Intent.Deployment = s.group.Revision, s.number()
				i.Intent.Desired, i.Intent.Stop, i.Intent.RestartPending, i.Intent.Retire, i.Intent.Sleep = fleet.DesiredRunning, nil, false, nil, nil
				i.Intent.Warm = a.Warm
			})
		case Sleep:
			s.edit(a.Instance, func(i *fleet.Instance) {
				i.Intent.Sleep = &fleet.Nap{At: now, Reason: a.Reason, Message: a.Message}
				ordered(a.Order, now)(i)
			})
		case Wake:
			s.edit(a.Instance, func(i *fleet.Instance) {
				i.Intent.Generation++
				i.Intent.GenerationAt, i.Intent.Reason = now, a.Reason
				i.Intent.Retire, i.Intent.Sleep = nil, nil
			})
		case Promote:
			s.edit(a.Instance, func(i *fleet.Instance) { i.Intent.Warm = false })
		case Retire:
			s.edit(a.Instance, func(i *fleet.Instance) {
				i.Intent.Retire = nil
				if r := a.Retirement; r != nil {
					set := *r
					set.At = now
					i.Intent.Retire = &set
				}
			})
		case Admit:
			s.edit(a.Instance, func(i *fleet.Instance) { i.Intent.Standby = false })
		case Stop:
			s.edit(a.Instance, func(i *fleet.Instance) {
				i.Intent.Desired, i.Intent.RestartPending, i.Intent.Retire, i.Intent.Sleep = fleet.DesiredStopped, a.Again, nil, nil
				i.Intent.Stop = &fleet.StopRequest{Force: a.Order == fleet.OrderKill, At: now, Reason: a.Reason}
				if a.Order != "" {
					ordered(a.Order, now)(i)
				}
			})
			if a.Restores != nil {
				s.edit(a.Restores, func(i *fleet.Instance) { i.Intent.ReplacedBy, i.Intent.Displaced = "", false })
			}
		case SetMove:
			next := *a.Move
			if next.Step != s.moves[next.Instance].Step {
				next.StepAt = now
			}
			s.moves[next.Instance] = &next
			if a.Intent != nil {
				s.edit(a.Instance, func(i *fleet.Instance) { i.Intent = *a.Intent })
			}
		case Order:
			s.edit(a.Instance, ordered(a.Order, now))
		case ReportLost:
			s.edit(a.Instance, func(i *fleet.Instance) {
				s := fleet.Status{Instance: i.Intent.ID, Node: i.Placement.Node, Generation: i.Placement.Generation}
				if i.Status != nil && i.Status.Generation == s.Generation {
					s = *i.Status
				}
				s.State, s.Reason, s.ChangedAt = fleet.Offline, a.Reason, now
				i.Status = &s
			})
		case EndDeleted:
			s.edit(a.Instance, func(i *fleet.Instance) {
				in(i.Placement.Node, fleet.Stopped, a.Reason, now)(i)
				i.Status.Generation = i.Placement.Generation
			})
		case RemoveEviction:
			delete(s.evictions, a.Instance.Intent.ID)
			if a.Stays {
				s.edit(a.Instance, func(i *fleet.Instance) { i.Intent.ReplacedBy, i.Intent.Displaced = "", false })
			}
		case DeleteInstance:
			delete(s.evictions, a.Instance.Intent.ID)
			s.instances = slices.DeleteFunc(s.instances, func(i *fleet.Instance) bool { return i.Intent.ID == a.Instance.Intent.ID })
		case DeleteGroup:
			s.group, s.loop, s.scaled = nil, nil, nil
		case SetCrashLoop:
			s.loop = &a.Loop
		case ClearCrashLoop:
			s.loop = nil
		case SetProgress:
			s.setProgress(a.Progress, now)
		case DeleteDeployment:
			s.deployments = slices.DeleteFunc(s.deployments, func(j deployment.Joined) bool { return j.Number == a.Progress.Number })
		case SetScaling:
			decided := *a.Scaling
			decided.At = now
			s.scaled = &decided
		case ClearScaling:
			s.scaled = nil
		case DeletePlan:
		}
	}
}

// number returns the number of the latest deployment.
func (s *sim) number() int64 {
	if n := len(s.deployments); n > 0 {
		return s.deployments[n-1].Number
	}
	return 0
}

func (s *sim) setProgress(next deployment.Progress, now time.Time) {
	if next.ChangedAt.IsZero() {
		next.ChangedAt = now
	}
	if next.State.Final() {
		next.FinishedAt = now
	}
	for n, j := range s.deployments {
		if j.Number == next.Number {
			s.deployments[n].Progress = &next
		}
	}
}

// edit replaces a record by an edited copy, as the view does.
func (s *sim) edit(i *fleet.Instance, f func(*fleet.Instance)) {
	for n, have := range s.instances {
		if have.Intent.ID == i.Intent.ID {
			next := *have
			f(&next)
			s.instances[n] = &next
		}
	}
}

func (s *sim) living() int {
	n := 0
	for _, i := range s.instances {
		if s.group != nil && i.Living(s.group.Spec.KeepsLost()) {
			n++
		}
	}
	return n
}

// short formats actions, one line each.
func short(actions []Action) string {
	var lines []string
	for _, a := range actions {
		if a.Kind == SetProgress {
			lines = append(lines, progressLine(a.Progress))
			continue
		}
		line := string(a.Kind)
		if a.Instance != nil {
			line += " " + string(a.Instance.Intent.ID)
		}
		if a.Order != "" {
			line += " by " + string(a.Order)
		}
		if a.Origin != "" {
			line += " " + string(a.Origin)
		}
		if a.Standby {
			line += " standby"
		}
		if a.Warm {
			line += " warm"
		}
		if a.Again {
			line += " again"
		}
		if a.Stays {
			line += " stays"
		}
		if a.Replaces != nil {
			line += " for " + string(a.Replaces.Intent.ID)
		}
		if a.Restores != nil {
			line += " restores " + string(a.Restores.Intent.ID)
		}
		if a.Kind == SetCrashLoop {
			line += fmt.Sprintf(" level %d for %v", a.Loop.Level, a.Loop.PausedUntil.Sub(at(0)))
		}
		lines = append(lines, line+": "+string(a.Reason))
	}
	return strings.Join(lines, "\n")
}

// expect compares the plan at a time, and its wake time; 0 means never.
func (s *sim) expect(t *testing.T, now time.Time, wake time.Duration, want ...string) []Action {
	t.Helper()
	actions, wakes := Group(s.input(), now)
	if got := short(actions); got != strings.Join(want, "\n") {
		t.Errorf("actions:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	if wake == 0 && !wakes.IsZero() {
		t.Errorf("wakes %v later, want never", wakes.Sub(now))
	}
	if wake != 0 && wakes.Sub(now) != wake {
		t.Errorf("wakes %v later, want %v", wakes.Sub(now), wake)
	}
	for _, a := range actions {
		if a.Reason == "" || a.Message == "" {
			t.Errorf("%s says no reason or sentence", short([]Action{a}))
		}
	}
	return actions
}
