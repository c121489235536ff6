package plan

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/sleep"
)

// sleeping makes an instance sleep since half an hour.
func sleeping(i *fleet.Instance) {
	in(alive, fleet.Sleeping, fleet.ReasonAsleep, at(-30*time.Minute))(i)
	i.Intent.Sleep = &fleet.Nap{At: at(-31 * time.Minute), Reason: fleet.ReasonAsleep, Message: "because"}
	ordered(fleet.OrderSleep, at(-31*time.Minute))(i)
}

func TestSleep(t *testing.T) {
	const m = time.Minute
	cases := []struct {
		rule  string
		setup func(*sim)
		wake  time.Duration
		want  []string
	}{
		{"an empty instance is put to sleep", func(s *sim) { s.with(0) }, 0, []string{"sleep i00001 by sleep: Asleep"}},
		{"not before its time", func(s *sim) {
			s.with(0)
			s.emptySince = at(-m)
		}, 4 * m, nil},
		{"not with players", func(s *sim) { s.with(1) }, 0, nil},
		{"not with an unknown number of players", func(s *sim) {
			s.with(0)
			s.silent = true
		}, 0, nil},
		{"not if it is frozen", func(s *sim) { s.with(0, func(i *fleet.Instance) { i.Intent.Frozen = true }) }, 0, nil},
		{"a sleeping instance counts towards the minimum", func(s *sim) { s.add(sleeping) }, 0, nil},
		{"a user wakes it", func(s *sim) {
			s.add(sleeping, func(i *fleet.Instance) { i.Intent = i.Intent.Awake("bob", "woken by bob") })
		}, 0, []string{"wake i00001 minimum: Woken"}},
		{"a join wakes it", func(s *sim) {
			s.add(sleeping, func(i *fleet.Instance) { i.Status.Wake = &sleep.Call{Join: true} })
		}, 0, []string{"wake i00001 minimum: Woken"}},
		{"while it waits for its node, nothing is ordered", func(s *sim) {
			s.add(sleeping, func(i *fleet.Instance) { i.Intent.Generation, i.Intent.Sleep = 2, nil })
		}, 0, nil},
		{"a stop ends it", func(s *sim) { s.add(sleeping, wantsStop(false)) }, 0, []string{"create minimum: BelowMinimum", "order i00001 by stop: StopRequested"}},
		{"what a user puts to sleep is ordered to sleep", func(s *sim) {
			s.with(0, func(i *fleet.Instance) { i.Intent.Sleep = &fleet.Nap{Reason: fleet.ReasonAsleep, Message: "because"} })
		}, 0, []string{"order i00001 by sleep: Asleep"}},
		{"one that crashed instead is replaced", func(s *sim) {
			s.add(sleeping, in(alive, fleet.Crashed, fleet.ReasonExited, at(-m)))
		}, 0, []string{"create minimum for i00001: Replacement"}},
		{"one above the minimum is stopped when it is idle", func(s *sim) {
			s.scaled = decided(2, at(-9*m))
			s.add(sleeping)
			s.add(sleeping)
		}, 0, []string{"set_scaling: Idle", "stop i00002 by stop: Idle"}},
		{"a drain stops it and starts another one", func(s *sim) {
			s.drains[alive] = &fleet.NodeDrain{At: at(0), TimeoutSeconds: 60}
			s.add(sleeping)
		}, 0, []string{"stop i00001 by stop: NodeDrained", "create minimum: BelowMinimum"}},
		{"it is lost with its node and replaced", func(s *sim) {
			s.outage = Outage{Nodes: 2, Lost: 1}
			s.add(sleeping, in(lost, fleet.Sleeping, fleet.ReasonAsleep, at(-m)))
		}, 0, []string{"lose i00001: NodeLost"}},
		{"a deployment keeps instances awake", func(s *sim) {
			s.with(0)
			s.instances[0].Intent.Deployment = 1
			s.deployments = []deployment.Joined{{Deployment: &deployment.Deployment{Group: "g", Number: 1}, Progress: &deployment.Progress{Group: "g", Number: 1, State: deployment.Paused}}}
			s.deployments[0].Paused = true
		}, 0, nil},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			s := newSim()
			s.group.Spec.Scaling.Min = 1
			s.group.Spec.Sleep.AfterEmptySeconds = 300
			s.emptySince = at(-time.Hour)
			c.setup(s)
			actions, _ := Group(s.input(), at(0))
			var got []string
			for _, a := range actions {
				if a.Kind != SetProgress {
					got = append(got, short([]Action{a}))
				}
			}
			if len(got) != len(c.want) {
				t.Fatalf("actions %q, want %q", got, c.want)
			}
			for n := range got {
				if got[n] != c.want[n] {
					t.Errorf("action %q, want %q", got[n], c.want[n])
				}
			}
			if c.wake != 0 {
				s.expect(t, at(0), c.wake, c.want...)
			}
		})
	}
}

func TestNothingOccupiedFrozenOrClaimedIsPutToSleep(t *testing.T) {
	property(t, func(t *rapid.T, s *sim) {
		s.group.Spec.Sleep.AfterEmptySeconds = 1 + rapid.IntRange(0, 600).Draw(t, "sleepAfter")
		actions, _ := Group(s.input(), at(0))
		for _, a := range actions {
			if a.Kind != Sleep {
				continue
			}
			if i := a.Instance; s.players[i.Intent.ID] > 0 || i.Intent.Frozen || i.Retiring() || i.State() != fleet.Online || !a.WhileEmpty {
				t.Fatalf("%s is put to sleep: %+v", i.Intent.ID, i.Intent)
			}
		}
	})
}
