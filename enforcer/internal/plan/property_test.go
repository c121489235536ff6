package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

// anySim draws a group in any reachable state.
func anySim(t *rapid.T) *sim {
	s := newSim()
	spec := &s.group.Spec
	spec.Scaling.Min = rapid.IntRange(0, 6).Draw(t, "min")
	spec.Scaling.Max = rapid.SampledFrom([]int{0, spec.Scaling.Min, spec.Scaling.Min + 2}).Draw(t, "max")
	spec.Scaling.Mode = rapid.SampledFrom([]fleet.ScalingMode{fleet.ScalingDynamic, fleet.ScalingDynamic, fleet.ScalingStatic, fleet.ScalingManual}).Draw(t, "mode")
	spec.OnCrash = rapid.SampledFrom([]fleet.OnCrash{fleet.CrashReplace, fleet.CrashRestart, fleet.CrashStop}).Draw(t, "onCrash")
	spec.OnNodeLoss = rapid.SampledFrom([]fleet.OnNodeLoss{"", fleet.NodeLossWait, fleet.NodeLossReplace, fleet.NodeLossStop}).Draw(t, "onNodeLoss")
	spec.OnNodeReturn = rapid.SampledFrom([]fleet.OnNodeReturn{"", fleet.KeepReplacement}).Draw(t, "onNodeReturn")
	s.deleted[lost] = rapid.IntRange(0, 5).Draw(t, "deleted") == 0
	s.lostSince = at(-time.Duration(rapid.IntRange(0, 4).Draw(t, "lostSince")) * time.Second)
	if rapid.IntRange(0, 4).Draw(t, "mass") == 0 {
		s.outage = Outage{Nodes: 8, Lost: 7}
	}
	spec.Rebalance = rapid.Bool().Draw(t, "rebalance")
	spec.Maintenance.On = rapid.IntRange(0, 5).Draw(t, "maintenance") == 0
	s.unmet = rapid.IntRange(0, 9).Draw(t, "unmet") == 0
	s.maintenance = rapid.IntRange(0, 9).Draw(t, "maintenance of all") == 0
	spec.Static.Enabled = rapid.IntRange(0, 2).Draw(t, "static") == 0
	s.group.Deleting = rapid.IntRange(0, 5).Draw(t, "deleting") == 0
	s.group.Revision = rapid.Int64Range(1, 2).Draw(t, "revision")
	if rapid.Bool().Draw(t, "scaled") {
		s.group.ScaledAt = moment(t, "scaledAt")
	}
	if rapid.IntRange(0, 3).Draw(t, "looped") == 0 {
		s.loop = &crashloop.Loop{
			Group: "g", GroupRevision: 1, Level: rapid.IntRange(1, 9).Draw(t, "level"),
			PausedUntil: moment(t, "pausedUntil").Add(30 * time.Minute),
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "drained") == 0 {
		s.drains[alive] = &fleet.NodeDrain{At: moment(t, "drainedAt"), TimeoutSeconds: 1 + rapid.IntRange(0, 3600).Draw(t, "drainTimeout")}
		if rapid.IntRange(0, 3).Draw(t, "drainCompleted") == 0 {
			s.drains[alive].CompletedAt = at(0)
		}
	}
	s.emptySince = at(-time.Duration(rapid.IntRange(0, 9).Draw(t, "empty")) * time.Minute)
	if rapid.IntRange(0, 3).Draw(t, "buffered") == 0 {
		spec.Scaling.BufferSlots, spec.Scaling.BufferPercent = rapid.IntRange(0, 150).Draw(t, "slots"), rapid.IntRange(0, 60).Draw(t, "percent")
	}
	if rapid.IntRange(0, 2).Draw(t, "decided") == 0 {
		s.scaled = &scaling.Decision{Target: rapid.IntRange(0, 8).Draw(t, "decision"), From: 1, To: rapid.IntRange(0, 2).Draw(t, "to"), At: moment(t, "decidedAt"), Reason: fleet.ReasonFullness, Message: "because"}
	}
	if rapid.IntRange(0, 3).Draw(t, "pooled") == 0 {
		spec.Scaling.WarmPoolMinimum = rapid.IntRange(0, 3).Draw(t, "pool")
	}
	if rapid.IntRange(0, 3).Draw(t, "policy") == 0 {
		s.rules = asking(rapid.IntRange(0, 8).Draw(t, "asks"))
		spec.Scaling.Combine = rapid.SampledFrom([]scalepolicy.Combine{scalepolicy.Max, scalepolicy.Chain}).Draw(t, "combine")
	}
	s.limits.KeepRecords = rapid.IntRange(0, 4).Draw(t, "keep")
	spec.Sleep.AfterEmptySeconds = rapid.SampledFrom([]int{0, 0, 60}).Draw(t, "sleepAfter")
	for range rapid.IntRange(0, 12).Draw(t, "instances") {
		anyInstance(t, s)
	}
	return s
}

// moment draws a time before now, coarse enough for ties.
func moment(t *rapid.T, label string) time.Time {
	return at(-time.Duration(rapid.IntRange(0, 90).Draw(t, label)) * time.Minute)
}

func anyInstance(t *rapid.T, s *sim) {
	created := moment(t, "created")
	i := s.add(createdAt(created))
	i.Intent.Origin = rapid.SampledFrom([]fleet.Origin{fleet.OriginMinimum, fleet.OriginManual}).Draw(t, "origin")
	if rapid.IntRange(0, 2).Draw(t, "desired") == 0 {
		wantsStop(rapid.Bool().Draw(t, "force"))(i)
		i.Intent.RestartPending = rapid.IntRange(0, 2).Draw(t, "restart") == 0
	}
	if rapid.IntRange(0, 4).Draw(t, "sleeps") == 0 {
		i.Intent.Sleep = &fleet.Nap{At: created, Reason: fleet.ReasonAsleep, Message: "because"}
	}
	i.Intent.Frozen = rapid.IntRange(0, 5).Draw(t, "frozen") == 0
	i.Intent.Warm = i.Intent.Origin == fleet.OriginMinimum && rapid.IntRange(0, 5).Draw(t, "warm") == 0
	if rapid.IntRange(0, 5).Draw(t, "retires") == 0 {
		retires(moment(t, "retiresSince"))(i)
		i.Intent.Retire.Restart = s.group.Spec.Static.Enabled && rapid.Bool().Draw(t, "again")
	}
	s.players[i.Intent.ID] = rapid.SampledFrom([]int{0, 0, 1, 70, 90, 100}).Draw(t, "players")
	s.tps[i.Intent.ID] = rapid.SampledFrom([]float64{0, 10, 20}).Draw(t, "tps")
	n := rapid.SampledFrom([]fleet.NodeID{alive, alive, lost}).Draw(t, "node")
	since := moment(t, "since")
	switch state := rapid.SampledFrom(fleet.States[:]).Draw(t, "state"); state {
	case fleet.Unplaced:
		if rapid.Bool().Draw(t, "placed") {
			placedOn(n, since)(i)
		}
	default:
		why := fleet.ReasonExited
		if rapid.IntRange(0, 5).Draw(t, "why") == 0 {
			why = fleet.ReasonAgentShutdown
		}
		in(n, state, why, since)(i)
	}
	if i.Placement != nil && rapid.IntRange(0, 2).Draw(t, "ordered") == 0 {
		ordered(rapid.SampledFrom([]fleet.OrderAction{fleet.OrderStop, fleet.OrderKill}).Draw(t, "order"), since)(i)
	}
	if older := s.instances[rapid.IntRange(0, len(s.instances)-1).Draw(t, "replaces")]; older != i && older.Intent.ReplacedBy == "" && rapid.Bool().Draw(t, "replacement") {
		i.Intent.Replaces, older.Intent.ReplacedBy = older.Intent.ID, i.Intent.ID
		older.Intent.Displaced = rapid.Bool().Draw(t, "displaced")
		i.Intent.Lineage = older.Intent.Place()
	}
	if i.Placement != nil && rapid.IntRange(0, 2).Draw(t, "evicted") == 0 {
		evicted(rapid.SampledFrom([]fleet.Reason{fleet.ReasonPreempted, fleet.ReasonRebalanced}).Draw(t, "eviction"))(s, i)
		s.evictions[i.Intent.ID].At = since
		s.waiting["x"] = rapid.Bool().Draw(t, "waits")
	}
	for range rapid.IntRange(0, 2).Draw(t, "crashes") {
		i.Intent.Crashes = append(i.Intent.Crashes, created)
	}
}

func property(t *testing.T, check func(*rapid.T, *sim)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) { check(t, anySim(t)) })
}

func TestTheOrderOfRecordsDoesNotMatter(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		actions, wake := Group(s.input(), at(0))
		shuffle := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		shuffle.Shuffle(len(s.instances), func(i, j int) {
			s.instances[i], s.instances[j] = s.instances[j], s.instances[i]
		})
		again, wakeAgain := Group(s.input(), at(0))
		if short(actions) != short(again) || !wake.Equal(wakeAgain) {
			t.Fatalf("%s\nwake %v, but in another order\n%s\nwake %v", short(actions), wake, short(again), wakeAgain)
		}
	})
}

func TestAtMostOneActionPerInstance(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		actions, _ := Group(s.input(), at(0))
		seen := map[fleet.InstanceID]bool{}
		for _, a := range actions {
			for _, i := range []*fleet.Instance{a.Instance, a.Replaces, a.Restores} {
				if i == nil {
					continue
				}
				if seen[i.Intent.ID] {
					t.Fatalf("%s twice in\n%s", i.Intent.ID, short(actions))
				}
				seen[i.Intent.ID] = true
			}
		}
	})
}

func TestWakesAfterNow(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		if _, wake := Group(s.input(), at(0)); !wake.IsZero() && !wake.After(at(0)) {
			t.Fatalf("wakes at %v", wake)
		}
	})
}

func TestOnlyCrashesOfItsOwnRevisionPauseAGroup(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		for _, i := range s.instances {
			i.Intent.GroupRevision = rapid.Int64Range(1, 2).Draw(t, "revision")
			i.Intent.Crashes = append(i.Intent.Crashes, at(-time.Second))
		}
		loop := func() (found *crashloop.Loop) {
			actions, _ := Group(s.input(), at(0))
			for _, a := range actions {
				if a.Kind == SetCrashLoop {
					found = &a.Loop
				}
			}
			return found
		}
		with, own := loop(), 0
		for _, i := range s.instances {
			if i.Intent.GroupRevision != s.group.Revision {
				i.Intent.Crashes = nil
				continue
			}
			own += len(i.Intent.Crashes)
			if _, crashed := i.CrashedAt(); crashed {
				own++
			}
		}
		if without := loop(); (with == nil) != (without == nil) || with != nil && with.Crashes != without.Crashes {
			t.Fatalf("%+v, but without those of other revisions %+v", with, without)
		}
		if with != nil && with.Crashes > own {
			t.Fatalf("%+v, but only %d are of its revision", with, own)
		}
	})
}

func TestNeverMoreThanTheMaximum(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		for range 8 {
			s.step(at(0))
		}
		if s.group == nil || s.group.Deleting {
			return
		}
		p := newPass(s.input(), at(0))
		p.preempt()
		p.cancelMoves()
		p.resolveDuplicates() // pairs that wait for players count once
		p.continueMoves()     // so do pairs of a move
		kept := 0             // frozen instances are left alone
		for _, i := range p.all {
			if i.Intent.Frozen && p.living(i) {
				kept++
			}
		}
		if limit := s.group.Spec.Scaling.Max; limit > 0 && p.countLiving() > max(limit, kept) {
			t.Fatalf("%d live, at most %d may", p.countLiving(), limit)
		}
	})
}

func TestNeverStopsMoreThanTheExcess(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		p := newPass(s.input(), at(0))
		own, living := 0, s.living()
		for _, i := range s.instances {
			if p.living(i) && p.own(i) {
				own++
			}
		}
		actions, _ := Group(s.input(), at(0))
		count := map[fleet.Reason]int{}
		for _, a := range actions {
			if a.Kind == Stop && !a.Instance.Intent.Warm { // see TestWarmPool
				count[a.Reason]++
				if a.Reason == fleet.ReasonScaledDown && s.players[a.Instance.Intent.ID] > 0 {
					t.Fatalf("%s has players", a.Instance.Intent.ID)
				}
			}
		}
		if n := count[fleet.ReasonScaledDown]; n > max(0, own-p.target()) {
			t.Fatalf("%d stopped as excess of %d over %d", n, own, p.target())
		}
		over := living - count[fleet.ReasonScaledDown] - s.group.Spec.Scaling.Max
		if n := count[fleet.ReasonAboveMaximum]; n > max(0, over) {
			t.Fatalf("%d stopped as surplus, %d were", n, over)
		}
	})
}

func TestTheFrozenAreLeftAsTheyAre(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		s.group.Deleting = false
		for _, i := range s.instances {
			i.Intent.RestartPending = false
		}
		actions, _ := Group(s.input(), at(0))
		for _, a := range actions {
			if a.Replaces != nil && a.Replaces.Intent.Frozen {
				t.Fatalf("a frozen instance is replaced:\n%s", short([]Action{a}))
			}
			if a.Instance == nil || !a.Instance.Intent.Frozen {
				continue
			}
			switch a.Kind {
			case Restart:
				if a.Instance.Terminal() || a.Instance.Lost() {
					t.Fatalf("a frozen instance is started:\n%s", short([]Action{a}))
				}
			case Stop:
				if a.Reason != fleet.ReasonNodeReturned && a.Reason != fleet.ReasonNodeLost {
					t.Fatalf("a frozen instance is stopped:\n%s", short([]Action{a}))
				}
			case DeleteInstance:
				t.Fatalf("a frozen instance is forgotten:\n%s", short([]Action{a}))
			default:
			}
		}
	})
}

func TestTheFrozenCountInTheirGroup(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		clear(s.evictions)
		for _, i := range s.instances { // each place counts once
			i.Intent.Replaces, i.Intent.ReplacedBy, i.Intent.Lineage = "", "", ""
			i.Intent.Retire = nil // one that ends its retirement in this pass needs another
		}
		before := 0
		p := newPass(s.input(), at(0))
		for _, i := range p.all {
			if p.living(i) || i.Intent.Frozen && !i.Intent.Warm {
				before++
			}
		}
		made := 0
		actions, _ := Group(s.input(), at(0))
		for _, a := range actions {
			if (a.Kind == Create || a.Kind == Restart) && a.Reason == fleet.ReasonBelowMinimum {
				made++
			}
		}
		if made > max(0, p.target()-before) {
			t.Fatalf("%d made for a minimum of %d, %d count:\n%s", made, p.target(), before, short(actions))
		}
	})
}

func TestWhatWasDoneIsNotDoneAgain(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		done := map[string]bool{}
		log := ""
		later := false // an instance was found lost, or more were decided: both have consequences in a later pass
		for range 8 {
			actions, _ := s.step(at(0))
			if len(actions) == 0 {
				return
			}
			for _, a := range actions {
				what := short([]Action{a})
				if a.Kind == Create && a.Replaces == nil { // a new instance has no name yet; the count covers it
					what = ""
					if len(done) > 0 && !later {
						t.Fatalf("it still makes new ones:\n%s\nafter\n%s", short(actions), log)
					}
				}
				if what != "" && done[what] {
					t.Fatalf("done again: %s", what)
				}
			}
			log += short(actions) + "\n--\n"
			for _, a := range actions {
				done[short([]Action{a})] = true
				later = later || a.Kind == SetScaling || a.Kind == ReportLost || a.Kind == EndDeleted || a.Reason == fleet.ReasonNodeLost
			}
		}
		t.Fatalf("no end after 8 rounds")
	})
}

// live simulates the rest of the system. Instances that should run are placed and come
// online, ordered ones stop, and returned nodes report what they run.
func (s *sim) live(now time.Time) {
	for _, i := range slices.Clone(s.instances) {
		switch {
		case i.HoldsNode() && i.Order != nil && i.Order.Generation >= i.Placement.Generation:
			s.edit(i, func(i *fleet.Instance) {
				i.Status = &fleet.Status{Node: i.Placement.Node, Generation: i.Placement.Generation, Epoch: 10, State: fleet.Stopped, Reason: i.Order.Reason, ChangedAt: now, FinishedAt: now}
			})
		case i.NeedsPlacement():
			s.edit(i, in(alive, fleet.Online, fleet.ReasonReady, now))
		case i.Lost() && s.sessions[i.Node()] != nil:
			s.edit(i, func(i *fleet.Instance) { i.Status = ended(*i.Status, fleet.Online, now) })
		}
	}
}

func TestConvergesWhenNothingCrashes(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		s.group.Deleting = false
		s.unmet, s.maintenance, s.group.Spec.Maintenance.On = false, false, false
		s.group.Spec.Scaling.Mode = fleet.ScalingDynamic
		for _, i := range s.instances { // frozen instances need not converge
			i.Intent.Frozen = false
		}
		s.sessions[alive].CreateRev = 11 // instances that ended with their agent may restart
		clear(s.players)
		clear(s.drains)
		s.outage = Outage{}
		now := at(0)
		for range 40 {
			s.step(now)
			s.live(now)
			actions, wake := Group(s.input(), now)
			switch {
			case len(actions) > 0:
			case s.living() >= newPass(s.input(), now).target():
				return
			default:
				now = wake
			}
		}
		p := newPass(s.input(), now)
		own := 0
		for _, i := range s.instances {
			if p.living(i) && p.own(i) {
				own++
			}
		}
		if s.living() < p.target() || own > p.target() {
			t.Fatalf("%d live, %d of them the enforcer's, target %d", s.living(), own, p.target())
		}
	})
}

func TestADeletedGroupGoes(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		s.group.Deleting = true
		for range 10 {
			s.step(at(0))
			s.live(at(0))
			if s.group == nil {
				break
			}
		}
		if s.group != nil || len(s.instances) > 0 {
			t.Fatalf("left: %+v with %d instances", s.group, len(s.instances))
		}
	})
}

func TestAWakeThatIsKeptLosesNothing(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		for range 5 {
			s.step(at(0))
		}
		_, wake := Group(s.input(), at(0))
		if wake.IsZero() {
			wake = at(1000 * time.Hour)
		}
		// Planning just before wake must return nothing, because nothing becomes due
		// earlier.
		if actions, _ := Group(s.input(), wake.Add(-1)); len(actions) > 0 {
			t.Fatalf("due before the wake at %v:\n%s", wake, short(actions))
		}
	})
}

// In one place of a group, instances crash and get lost, and nodes return in any order. The
// enforcer plans between the steps or not.
func TestWhenAllNodesAreBackOneOfEachPlaceIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim()
		s.group.Spec.OnNodeReturn = rapid.SampledFrom([]fleet.OnNodeReturn{"", fleet.KeepReplacement}).Draw(t, "onNodeReturn")
		s.group.Spec.StartupTimeoutSeconds, s.plans["plan"].StartupTimeoutSeconds = 0, 0
		s.add(manual)
		now := at(0)
		settle := func() {
			for range 8 {
				now = now.Add(time.Hour) // past every pause and retention
				s.step(now)
				s.live(now)
			}
		}
		settle()
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			i := rapid.SampledFrom(s.instances).Draw(t, "instance")
			switch what := rapid.IntRange(0, 2).Draw(t, "what"); {
			case what == 0 && i.State() == fleet.Online:
				s.edit(i, func(i *fleet.Instance) { i.Status = ended(*i.Status, fleet.Crashed, now) })
			case what == 1 && i.State() == fleet.Online:
				s.edit(i, onNode(lost, fleet.Offline, now))
			case what == 2 && i.State() == fleet.Offline:
				s.edit(i, onNode(alive, fleet.Online, now))
			}
			if rapid.Bool().Draw(t, "settle") {
				settle()
			}
		}
		for _, i := range s.instances {
			if i.State() == fleet.Offline {
				s.edit(i, onNode(alive, fleet.Online, now))
			}
		}
		settle()
		if n := s.living(); n != 1 {
			t.Fatalf("%d have the place of one", n)
		}
		for _, i := range s.instances { // the remaining instance is healed like any other
			if i.State() == fleet.Online {
				s.edit(i, func(i *fleet.Instance) { i.Status = ended(*i.Status, fleet.Crashed, now) })
			}
		}
		settle()
		if n := s.living(); n != 1 {
			t.Fatalf("%d have the place after the last one crashed", n)
		}
	})
}

// onNode gives an instance a state on the given node.
func onNode(n fleet.NodeID, state fleet.State, now time.Time) func(*fleet.Instance) {
	return func(i *fleet.Instance) {
		p := *i.Placement
		p.Node = n
		i.Placement, i.Status = &p, ended(*i.Status, state, now)
		i.Status.Node = n
	}
}

// ended returns a status with another state.
func ended(s fleet.Status, state fleet.State, now time.Time) *fleet.Status {
	s.State, s.Reason, s.ChangedAt, s.FinishedAt = state, fleet.ReasonExited, now, time.Time{}
	if state.Terminal() {
		s.FinishedAt = now
	}
	return &s
}

// Most of the fleet is lost at one moment for one cause. The sessions disappear within a
// keep-alive interval.
func TestNothingIsReplacedWhenMostOfTheFleetIsLostAtOneMoment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim()
		if rapid.Bool().Draw(t, "static") {
			exclusive(s)
		} else {
			s.group.Spec.OnNodeLoss = rapid.SampledFrom([]fleet.OnNodeLoss{fleet.NodeLossReplace, fleet.NodeLossStop}).Draw(t, "onNodeLoss")
		}
		nodes := rapid.IntRange(8, 40).Draw(t, "nodes")
		gone := rapid.IntRange(max(fleet.MassLossNodes, nodes/2+1), nodes).Draw(t, "lost")
		s.group.Spec.Scaling.Min, s.group.Spec.Scaling.Max = gone, 0
		went := map[fleet.NodeID]time.Time{}
		for n := range gone {
			id := fleet.NodeID(fmt.Sprintf("lost%d", n))
			went[id] = at(time.Duration(rapid.Int64Range(0, int64(ttl/3)).Draw(t, "went")))
			s.sessions[id] = &fleet.NodeSession{Node: id}
			s.add(in(id, fleet.Online, fleet.ReasonReady, at(-time.Hour)))
		}
		for now := at(0); now.Before(at(3 * ttl)); now = now.Add(50 * time.Millisecond) {
			s.outage.Nodes, s.outage.Lost = nodes, 0
			for id, since := range went {
				if !since.After(now) {
					delete(s.sessions, id)
					s.outage.Lost++
				}
			}
			if s.outage.Mass(s.limits) {
				s.outage.MassUntil = now
			}
			input := s.input()
			input.LostSince = func(n fleet.NodeID) time.Time {
				if s.sessions[n] != nil {
					return time.Time{}
				}
				return went[n]
			}
			actions, _ := Group(input, now)
			for _, a := range actions {
				if a.Kind != ReportLost {
					t.Fatalf("%v after the first loss, with %d of %d nodes lost:\n%s", now.Sub(at(0)), s.outage.Lost, nodes, short(actions))
				}
			}
			s.apply(actions, now)
		}
		for _, i := range s.instances {
			if !i.Lost() {
				t.Fatalf("%s is %s, want %s", i.Intent.ID, i.State(), fleet.Offline)
			}
		}
	})
}

func TestAnExclusiveCopyIsGoneBeforeItsInstanceMovesOrEnds(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		exclusive(s)
		seconds := rapid.Int64Range(1, 60).Draw(t, "ttl")
		lives := time.Duration(seconds) * time.Second
		s.lostSince = at(-time.Duration(rapid.Int64Range(0, 2*int64(lives)).Draw(t, "lostFor")))
		input := s.input()
		input.TTL = func(fleet.NodeID) time.Duration { return lives }
		actions, _ := Group(input, at(0))
		for _, a := range actions {
			moves := a.Kind == Restart && (a.Instance.Lost() || a.Instance.Stranded())
			if (moves || a.Kind == EndDeleted) && at(0).Sub(s.lostSince) < lives+fleet.ExclusiveMargin(lives) {
				t.Fatalf("%v after the loss, with a TTL of %v: %s", at(0).Sub(s.lostSince), lives, short(actions))
			}
		}
	})
}
