package plan

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

// deploy requests a deployment of the sim's group, with the default options after edits.
func (s *sim) deploy(edits ...func(*deployment.Deployment)) *deployment.Deployment {
	var r deployment.Requested
	o, _ := r.Complete(&s.group.Spec, deployment.Rolling)
	d := &deployment.Deployment{
		Group: "g", Number: s.number() + 1, Trigger: deployment.TriggerManual, Strategy: deployment.Rolling, Options: o,
		GroupRevision: s.group.Revision, Spec: s.group.Spec, By: "alice",
	}
	for _, edit := range edits {
		edit(d)
	}
	s.deployments = append(s.deployments, deployment.Joined{Deployment: d})
	return d
}

func (s *sim) latest() deployment.Joined { return s.deployments[len(s.deployments)-1] }

// began gives the latest deployment the progress of one that has begun.
func began(total, updated int) func(*sim) {
	return func(s *sim) {
		s.setProgress(deployment.Progress{
			Group: "g", Number: s.number(), State: deployment.InProgress, Total: total, Updated: updated, Ready: 9, Promoted: true, ChangedAt: at(-time.Second),
		}, at(0))
	}
}

// madeBy gives an instance the number of a deployment.
func madeBy(number int64) func(*fleet.Instance) {
	return func(i *fleet.Instance) { i.Intent.Deployment = number }
}

// instead puts an instance in the place of another one.
func instead(of *fleet.Instance) func(*fleet.Instance) {
	return func(i *fleet.Instance) {
		i.Intent.Replaces, i.Intent.Lineage, i.Intent.Reason = of.Intent.ID, of.Intent.Place(), fleet.ReasonDeployment
		of.Intent.ReplacedBy = i.Intent.ID
	}
}

func deploys(i *fleet.Instance) {
	i.Intent.Retire = &fleet.Retirement{At: at(-time.Minute), Reason: fleet.ReasonDeployment, Message: "because", DeadlineSeconds: 330}
}

func TestRollout(t *testing.T) {
	starting := in(alive, fleet.Starting, fleet.ReasonProcessStarted, at(0))
	const stall = 220 * time.Second // until the replacement must be ready
	tests := []struct {
		rule  string
		setup func(*sim)
		wake  time.Duration
		want  []string
	}{
		{"a replacement starts before the first instance stops", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			s.add(online)
			s.add(online)
			s.deploy()
		}, 0, []string{"create minimum for i00001: Deployment", "set_progress IN_PROGRESS 0/2"}},
		{"empty ones come first", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			s.players[s.add(online).Intent.ID] = 1
			s.add(online)
			s.deploy()
		}, 0, []string{"create minimum for i00002: Deployment", "set_progress IN_PROGRESS 0/2"}},
		{"nothing more begins while it starts", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			first := s.add(online)
			s.add(online)
			s.deploy()
			s.add(instead(first), madeBy(1), starting)
			began(2, 0)(s)
		}, 135 * time.Second, nil},
		{"once it is ready, the original retires", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			first := s.add(online)
			s.add(online)
			s.deploy()
			s.add(instead(first), madeBy(1), online)
			began(2, 0)(s)
		}, stall - time.Second, []string{"retire i00001: Deployment"}},
		{"and stops once it is empty", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			first := s.add(online, deploys)
			s.add(online)
			s.deploy()
			s.add(instead(first), madeBy(1), online)
			began(2, 0)(s)
		}, 270 * time.Second, []string{"stop i00001 by stop: Deployment"}},
		{"with players it stays until its deadline", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			first := s.add(online, deploys)
			s.players[first.Intent.ID] = 4
			s.deploy()
			s.add(instead(first), madeBy(1), online)
			began(1, 0)(s)
		}, 270 * time.Second, nil},
		{"the next one follows", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			first := s.add(online, wantsStop(false), ordered0)
			s.add(online)
			s.deploy()
			s.add(instead(first), madeBy(1), online)
			began(2, 0)(s)
		}, 70 * time.Second, []string{"create minimum for i00002: Deployment", "set_progress IN_PROGRESS 1/2"}},
		{"it completes", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.deploy()
			s.add(madeBy(1), online)
			began(1, 0)(s)
		}, 0, []string{"set_progress COMPLETED 1/1"}},
		{"a batch replaces several at the same time", func(s *sim) {
			s.group.Spec.Scaling.Min = 3
			s.add(online)
			s.add(online)
			s.add(online)
			s.deploy(func(d *deployment.Deployment) { d.Options.BatchSize, d.Options.MaxSurge = 2, 2 })
		}, 0, []string{"create minimum for i00001: Deployment", "create minimum for i00002: Deployment", "set_progress IN_PROGRESS 0/3"}},
		{"one started by hand gets a replacement too", func(s *sim) {
			s.group.Spec.Scaling.Min = 0
			s.add(online, manual)
			s.deploy()
		}, 0, []string{"create manual for i00001: Deployment", "set_progress IN_PROGRESS 0/1"}},
		{"with a surge the group may exceed its maximum", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Spec.Scaling.Max = 1, 1
			first := s.add(online)
			s.deploy()
			s.add(instead(first), madeBy(1), starting)
			began(1, 0)(s)
		}, 135 * time.Second, nil},
		{"an instance that is not ready starts again", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(starting)
			s.deploy()
		}, 0, []string{"stop i00001 by stop again: Deployment", "set_progress IN_PROGRESS 0/1"}},
		{"one that waits for a node is composed again", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add()
			s.deploy()
		}, 0, []string{"again i00001: Deployment", "set_progress IN_PROGRESS 0/1"}},
		{"in a static group an instance retires and starts again", func(s *sim) {
			s.group.Spec.Static.Enabled, s.group.Spec.Scaling.Min = true, 2
			s.add(online)
			s.add(online)
			s.deploy()
		}, 0, []string{"retire i00001: Deployment", "set_progress IN_PROGRESS 0/2"}},
		{"and the next one waits until it is ready", func(s *sim) {
			s.group.Spec.Static.Enabled, s.group.Spec.Scaling.Min = true, 2
			s.add(madeBy(1), starting)
			s.add(online)
			s.deploy()
			began(2, 1)(s)
		}, 135 * time.Second, nil},
		{"a frozen instance stays", func(s *sim) {
			s.add(online).Intent.Frozen = true
			s.deploy()
		}, 0, []string{"set_progress COMPLETED 0/0"}},
		{"one on a lost node stays", func(s *sim) {
			s.group.Spec.OnNodeLoss, s.group.Spec.Scaling.Min = fleet.NodeLossWait, 1
			s.add(in(lost, fleet.Offline, fleet.ReasonNodeLost, at(-time.Minute)))
			s.deploy()
		}, 0, []string{"set_progress COMPLETED 0/0"}},
		{"maintenance pauses it, and players may join again", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			first := s.add(online, deploys)
			s.deploy()
			s.add(instead(first), madeBy(1), online)
			began(1, 0)(s)
			s.maintenance = true
		}, 0, []string{"retire i00001: Deployment", "set_progress PAUSED 0/1"}},
		{"a user pauses it", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(online)
			s.deploy(func(d *deployment.Deployment) { d.Paused = true })
			began(1, 0)(s)
		}, 0, []string{"set_progress PAUSED 0/1"}},
		{"without progress it fails, and the original stays", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			first := s.add(online)
			s.deploy()
			s.add(instead(first), madeBy(1), starting)
			began(1, 0)(s)
			s.latest().Progress.ChangedAt = at(-stall)
		}, 0, []string{"stop i00002 by stop restores i00001: Deployment", "set_progress FAILED 0/1"}},
		{"a canary is replaced alone", func(s *sim) {
			s.group.Spec.Scaling.Min = 3
			s.add(online)
			s.add(online)
			s.add(online)
			s.deploy(canary(), func(d *deployment.Deployment) { d.Options.BatchSize, d.Options.MaxSurge = 3, 3 })
		}, 0, []string{"create minimum for i00001: Deployment", "set_progress IN_PROGRESS 0/3"}},
		{"the others wait until it is healthy", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			s.add(online)
			s.deploy(canary())
			s.add(madeBy(1), in(alive, fleet.Online, fleet.ReasonReady, at(-20*time.Second)))
			began(2, 1)(s)
			s.latest().Progress.Promoted = false
		}, 10 * time.Second, nil},
		{"then they follow", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			s.add(online)
			s.deploy(canary())
			s.add(madeBy(1), in(alive, fleet.Online, fleet.ReasonReady, at(-30*time.Second)))
			began(2, 1)(s)
			s.latest().Progress.Promoted = false
		}, 0, []string{"create minimum for i00001: Deployment", "set_progress IN_PROGRESS 1/2"}},
		{"a user may promote it before", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			s.add(online)
			s.deploy(canary(), func(d *deployment.Deployment) { d.Promoted = true })
			s.add(madeBy(1), in(alive, fleet.Online, fleet.ReasonReady, at(-20*time.Second)))
			began(2, 1)(s)
			s.latest().Progress.Promoted = false
		}, 10 * time.Second, []string{"create minimum for i00001: Deployment", "set_progress IN_PROGRESS 1/2"}},
		{"a canary with few ticks is not healthy", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			s.add(online)
			s.deploy(canary())
			s.tps = map[fleet.InstanceID]float64{s.add(madeBy(1), online).Intent.ID: 12}
			began(2, 1)(s)
			s.latest().Progress.Promoted = false
		}, stall + 300*time.Second - time.Second, nil},
		{"a canary that crashes fails the deployment", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			first := s.add(online)
			s.add(online)
			s.deploy(canary())
			s.add(instead(first), madeBy(1), crashed(at(-time.Second)))
			began(2, 0)(s)
			s.latest().Progress.Promoted = false
		}, keep - time.Second, []string{"set_progress FAILED 0/2"}},
		{"a blue-green deployment starts all replacements at once", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			s.add(online)
			s.add(online)
			s.deploy(blueGreen())
		}, 0, []string{"create minimum standby for i00001: Deployment", "create minimum standby for i00002: Deployment", "set_progress IN_PROGRESS 0/2"}},
		{"no original retires while a replacement is not healthy", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			greens(s, online, starting)
		}, 135 * time.Second, nil},
		{"when all are healthy they take over together", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			greens(s, online, online)
		}, 0, []string{"retire i00001: Deployment", "retire i00002: Deployment", "admit i00003: Deployment", "admit i00004: Deployment", "set_progress IN_PROGRESS 0/2"}},
		{"a replacement that crashes before fails it, and the others stop at once", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			greens(s, online, crashed(at(-time.Second)))
		}, keep - time.Second, []string{"stop i00003 by stop restores i00001: Deployment", "set_progress FAILED 0/2"}},
		{"a replacement whose original is gone takes players", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.deploy(blueGreen())
			s.deployments[0].Canceled = true
			s.add(madeBy(1), online, standby)
			began(1, 0)(s)
		}, 0, []string{"admit i00001: Deployment", "set_progress CANCELLED 0/1"}},
		{"when it ends early and both have players, the replacement retires", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			first := s.add(online)
			s.deploy()
			second := s.add(instead(first), madeBy(1), online)
			s.players = map[fleet.InstanceID]int{first.Intent.ID: 1, second.Intent.ID: 1}
			began(1, 0)(s)
			s.latest().Progress.State, s.deployments[0].Canceled = deployment.Canceled, true
		}, 0, []string{"retire i00002: Deployment"}},
		{"after a rollback what it restores stays, and the others are replaced", func(s *sim) {
			s.group.Spec.Scaling.Min = 2
			s.add(madeBy(1), online)
			s.add(madeBy(2), online)
			s.plans["plan"].Layers = nil
			s.deploy()
			s.setProgress(deployment.Progress{Number: 1, State: deployment.Completed}, at(0))
			s.deploy(func(d *deployment.Deployment) { d.RolledBack = true })
			s.deploy(func(d *deployment.Deployment) { d.Trigger, d.RollbackOf, d.Restores = deployment.TriggerRollback, 2, 1 })
		}, 0, []string{"create minimum for i00002: Deployment", "set_progress ROLLED_BACK 0/0", "set_progress IN_PROGRESS 0/1"}},
		{"only the latest deployments are kept", func(s *sim) {
			for range deployment.MaxHistory + 1 {
				s.deploy()
				s.setProgress(deployment.Progress{Number: s.number(), State: deployment.Completed}, at(0))
			}
		}, 0, []string{"delete_deployment: Retention"}},
	}
	for _, test := range tests {
		t.Run(test.rule, func(t *testing.T) {
			s := newSim()
			s.group.Spec.Scaling.Min = 0
			test.setup(s)
			s.expect(t, at(0), test.wake, test.want...)
		})
	}
}

func ordered0(i *fleet.Instance) { ordered(fleet.OrderStop, at(0))(i) }

func standby(i *fleet.Instance) { i.Intent.Standby = true }

func blueGreen() func(*deployment.Deployment) {
	return func(d *deployment.Deployment) {
		d.Strategy = deployment.BlueGreen
		var r deployment.Requested
		d.Options, _ = r.Complete(&d.Spec, d.Strategy)
	}
}

// greens adds two instances and their replacements by a blue-green deployment that has begun.
func greens(s *sim, one, two func(*fleet.Instance)) {
	first, second := s.add(online), s.add(online)
	s.deploy(blueGreen())
	s.add(instead(first), madeBy(1), standby, one)
	s.add(instead(second), madeBy(1), standby, two)
	began(2, 0)(s)
	s.latest().Progress.Promoted = false
}

func canary() func(*deployment.Deployment) {
	return func(d *deployment.Deployment) {
		d.Strategy = deployment.Canary
		var r deployment.Requested
		d.Options, _ = r.Complete(&d.Spec, d.Strategy)
	}
}

// world is a sim in which time passes.
type world struct {
	*sim
	t    *rapid.T
	now  time.Time
	boot time.Duration
	// crashes is how many more servers crash.
	crashes int
	joins   bool
}

// tick plans until nothing is left to do, and then lets agents and players act.
func (w *world) tick() {
	for n := 0; ; n++ {
		actions, _ := Group(w.input(), w.now)
		if len(actions) == 0 {
			break
		}
		if n == 12 {
			w.t.Fatalf("planning does not end:\n%s", short(actions))
		}
		w.apply(actions, w.now)
	}
	w.now = w.now.Add(10 * time.Second)
	for _, i := range w.instances {
		w.edit(i, w.act)
	}
}

func (w *world) act(i *fleet.Instance) {
	state := func(s fleet.State, why fleet.Reason) { in(alive, s, why, w.now)(i) }
	switch {
	case i.Order != nil && i.Order.Generation == i.Intent.Generation && i.HoldsNode():
		state(fleet.Stopped, fleet.ReasonStopRequested)
		delete(w.players, i.Intent.ID)
	case i.NeedsPlacement():
		state(fleet.Starting, fleet.ReasonProcessStarted)
	case i.State() == fleet.Starting && w.crashes > 0 && rapid.IntRange(0, 3).Draw(w.t, "crash") == 0:
		w.crashes--
		state(fleet.Crashed, fleet.ReasonExited)
	case i.State() == fleet.Starting && w.now.Sub(i.Status.ChangedAt) >= w.boot:
		state(fleet.Online, fleet.ReasonReady)
	case i.State() != fleet.Online || !w.joins || i.Intent.Standby:
	case i.Retiring() && w.now.After(i.Intent.Retire.At.Add(time.Duration(i.Intent.Retire.TransferAfterSeconds)*time.Second)):
		w.players[i.Intent.ID] = rapid.IntRange(0, 1).Draw(w.t, "left behind")
	case i.Retiring():
		w.players[i.Intent.ID] = max(0, w.players[i.Intent.ID]-rapid.IntRange(0, 1).Draw(w.t, "leaves"))
	default:
		w.players[i.Intent.ID] = rapid.IntRange(0, 2).Draw(w.t, "players")
	}
}

// ready counts the instances that take players, running those that are not stopping.
func (w *world) ready() (ready, running int) {
	for _, i := range w.instances {
		if i.TakesPlayers() && i.Intent.Desired == fleet.DesiredRunning {
			ready++
		}
		if i.Intent.Desired == fleet.DesiredRunning && !i.Terminal() {
			running++
		}
	}
	return ready, running
}

func anyWorld(t *rapid.T) *world {
	w := &world{sim: newSim(), t: t, now: at(0), boot: time.Duration(rapid.IntRange(0, 12).Draw(t, "boot")) * 10 * time.Second}
	spec := &w.group.Spec
	spec.Static.Enabled = rapid.IntRange(0, 2).Draw(t, "static") == 0
	size := rapid.IntRange(0, 6).Draw(t, "size")
	spec.Scaling.Min = rapid.IntRange(0, size).Draw(t, "min")
	spec.Scaling.Max = rapid.SampledFrom([]int{0, size, size + 1}).Draw(t, "max")
	spec.Scaling.Mode = rapid.SampledFrom([]fleet.ScalingMode{fleet.ScalingDynamic, fleet.ScalingManual}).Draw(t, "mode")
	for n := range size {
		i := w.add(online)
		if n >= spec.Scaling.Min {
			manual(i)
		}
	}
	w.joins = rapid.Bool().Draw(t, "joins")
	w.deploy(func(d *deployment.Deployment) {
		batch := rapid.IntRange(1, 3).Draw(t, "batch")
		r := deployment.Requested{BatchSize: &batch}
		if zero := 0; rapid.Bool().Draw(t, "stop first") {
			r.MaxSurge = &zero
		}
		if spec.Scaling.Mode != fleet.ScalingManual {
			d.Strategy = rapid.SampledFrom([]deployment.Strategy{deployment.Rolling, deployment.Canary, deployment.BlueGreen}).Draw(t, "strategy")
		}
		if d.Strategy == deployment.BlueGreen {
			if spec.Static.Enabled {
				d.Strategy = deployment.Rolling
			} else {
				r = deployment.Requested{}
			}
		}
		d.Options, _ = r.Complete(spec, d.Strategy)
	})
	return w
}

// longest is the number of ticks in which every deployment of the tests must end.
const longest = 6 * (33 + 60 + 30)

func TestARolloutKeepsInstancesReadyAndReplacesAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := anyWorld(t)
		o, updated := w.latest().Options, 0
		before, _ := w.ready()
		for n := 0; !w.latest().State().Final(); n++ {
			w.tick()
			ready, running := w.ready()
			if ready < before-o.MaxUnavailable {
				t.Fatalf("%d of %d take players, at most %d may be unavailable", ready, before, o.MaxUnavailable)
			}
			if running > before+o.MaxSurge {
				t.Fatalf("%d run, %d did, the surge is %d", running, before, o.MaxSurge)
			}
			if p := w.latest().Progress; p.Updated < updated || p.Updated > p.Total {
				t.Fatalf("%d of %d are updated after %d", p.Updated, p.Total, updated)
			}
			updated = w.latest().Progress.Updated
			if n > longest {
				t.Fatalf("it does not end: %+v", w.latest().Progress)
			}
		}
		if p := w.latest().Progress; p.State != deployment.Completed {
			t.Fatalf("it ended as %s: %s", p.State, p.Message)
		}
		for _, i := range w.instances {
			if deployment.Replaceable(i) && i.Intent.Deployment != 1 {
				t.Fatalf("%s was not replaced", i.Intent.ID)
			}
		}
		if ready, _ := w.ready(); ready != before {
			t.Fatalf("%d take players, %d did", ready, before)
		}
	})
}

func TestARolloutEndsWhateverCrashesAndJoins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := anyWorld(t)
		w.crashes = rapid.IntRange(0, 12).Draw(t, "crashes")
		pauses := rapid.IntRange(0, 2).Draw(t, "pauses")
		for n := 0; !w.latest().State().Final(); n++ {
			if pauses > 0 && rapid.IntRange(0, 9).Draw(t, "pause") == 0 {
				pauses--
				w.latest().Paused = true
				w.tick()
				w.latest().Paused = false
			}
			w.tick()
			if n > 4*longest {
				t.Fatalf("it does not end: %+v", w.latest().Progress)
			}
		}
		for range longest {
			w.tick()
		}
		places := map[string]int{}
		for _, i := range w.instances {
			if i.Intent.Desired == fleet.DesiredRunning && !i.Terminal() && w.players[i.Intent.ID] == 0 {
				places[i.Intent.Place()]++
			}
			if i.Retiring() {
				t.Fatalf("%s still retires after %s", i.Intent.ID, w.latest().State())
			}
			if i.Intent.Standby && i.Intent.Desired == fleet.DesiredRunning && !i.Terminal() {
				t.Fatalf("%s takes no players after %s", i.Intent.ID, w.latest().State())
			}
		}
		for place, n := range places {
			if n > 1 {
				t.Fatalf("%d empty instances are in place %s after %s", n, place, w.latest().State())
			}
		}
	})
}

func progressLine(p deployment.Progress) string {
	return fmt.Sprintf("%s %s %d/%d", SetProgress, p.State, p.Updated, p.Total)
}

// Rules for the same instance must not undo each other again and again.
func TestADeploymentDoesNotFightWithMovesAndDrains(t *testing.T) {
	tests := map[string]func(s *sim, first *fleet.Instance){
		"a canceled one and a move of the scheduler": func(s *sim, first *fleet.Instance) {
			s.deploy(func(d *deployment.Deployment) { d.Canceled = true })
			evicted(fleet.ReasonRebalanced)(s, first)
		},
		"an active one and a move of an instance with players": func(s *sim, first *fleet.Instance) {
			s.players[first.Intent.ID] = 1
			s.deploy()
			evicted(fleet.ReasonRebalanced)(s, first)
		},
		"an active one and a drain": func(s *sim, _ *fleet.Instance) {
			s.deploy()
			s.drain(0)
			s.add(madeBy(1), in(other, fleet.Starting, fleet.ReasonProcessStarted, at(0)))
		},
	}
	for name, setup := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSim()
			s.group.Spec.Rebalance, s.group.Spec.Scaling.Min = true, 1
			setup(s, s.add(online))
			created, log := 0, ""
			for range 12 {
				actions, _ := s.step(at(0))
				for _, a := range actions {
					if a.Kind == Create {
						created++
					}
				}
				log += short(actions) + "\n--\n"
			}
			if created > 1 {
				t.Errorf("%d instances were created in place of one:\n%s", created, log)
			}
		})
	}
}

func TestACanaryGoesOnWhenTheGroupShrinks(t *testing.T) {
	s := newSim()
	s.group.Spec.Scaling.Min = 2
	first := s.add(online)
	s.add(online)
	d := s.deploy(func(d *deployment.Deployment) {
		d.Strategy, d.Options.CanaryInstances = deployment.Canary, 2
		d.Options.BatchSize, d.Options.MaxSurge = 2, 2
	})
	s.add(instead(first), madeBy(d.Number), online)
	began(5, 3)(s) // three of five were stopped meanwhile, because the group needs them no more
	s.deployments[0].Progress.Promoted = false
	actions, _ := Group(s.input(), at(0))
	for _, a := range actions {
		if a.Kind == Create && a.Replaces != nil {
			return
		}
	}
	t.Errorf("the second canary does not begin:\n%s", short(actions))
}

func TestANewKindOfCrashFailsAHealthGate(t *testing.T) {
	for _, c := range []struct {
		rule  string
		gate  bool
		old   string // the fingerprint of an earlier crash
		state deployment.State
	}{
		{"without a gate", false, "", deployment.InProgress},
		{"a crash that is new", true, "other", deployment.Failed},
		{"a crash that the earlier instances had too", true, "bad", deployment.InProgress},
	} {
		t.Run(c.rule, func(t *testing.T) {
			s := newSim()
			s.group.Spec.Scaling.Min = 2
			first := s.add(online)
			s.add(online)
			d := s.deploy(func(d *deployment.Deployment) { d.Options.HealthGate = c.gate })
			fresh := s.add(instead(first), madeBy(d.Number), crashed(at(-time.Second)))
			began(2, 0)(s)
			s.recorded = []*reports.Crash{
				{Group: "g", Instance: first.Intent.ID, Generation: 1, Fingerprint: c.old},
				{Group: "g", Instance: fresh.Intent.ID, Generation: 1, Name: "g-3", Fingerprint: "bad", Cause: "no such world"},
			}
			actions, _ := Group(s.input(), at(0))
			s.apply(actions, at(0))
			if p := s.latest().Progress; p.State != c.state {
				t.Errorf("it is %s: %s", p.State, p.Message)
			} else if c.state == deployment.Failed && p.Message != "g-3 crashed in a way in which no earlier instance did: no such world" {
				t.Errorf("it says %q", p.Message)
			}
		})
	}
}
