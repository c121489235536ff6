package sleep

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/fleet/sleep"
)

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func spec() *fleet.GroupSpec {
	s := fleet.DefaultSpec()
	s.Scaling.Max, s.Players.Max, s.Sleep.AfterEmptySeconds = 5, 100, 60
	return &s
}

func awake(empty time.Duration, players int) Instance {
	i := Instance{Instance: &fleet.Instance{Placement: &fleet.Placement{}, Status: &fleet.Status{State: fleet.Online}}, Load: scaling.Instance{Players: players}}
	if players == 0 {
		i.EmptySince = now.Add(-empty)
	}
	return i
}

func asleep(edit func(*fleet.Instance)) Instance {
	i := &fleet.Instance{
		Intent: fleet.Intent{Sleep: &fleet.Nap{}}, Placement: &fleet.Placement{}, Status: &fleet.Status{State: fleet.Sleeping},
	}
	if edit != nil {
		edit(i)
	}
	return Instance{Instance: i}
}

func called(i *fleet.Instance) { i.Status.Wake = &sleep.Call{Join: true, Player: "ann"} }

func byUser(i *fleet.Instance) {
	i.Intent.Sleep, i.Intent.Message, i.Intent.By = nil, "woken by bob", "bob"
}

func TestDecide(t *testing.T) {
	cases := []struct {
		rule string
		in   func(*Input)
		// want is the message of each step, after "wake" or "sleep".
		want []string
		wake time.Duration
	}{
		{"an instance that was empty long enough is put to sleep", func(in *Input) { in.Instances = []Instance{awake(time.Minute, 0)} }, []string{"sleep asleep because it was empty for 60 s; a player who joins"}, 0},
		{"before that it is awake", func(in *Input) { in.Instances = []Instance{awake(50*time.Second, 0)} }, nil, 10 * time.Second},
		{"without the field nothing sleeps", func(in *Input) {
			in.Spec.Sleep.AfterEmptySeconds = 0
			in.Instances = []Instance{awake(time.Hour, 0)}
		}, nil, 0},
		{"one with players stays awake", func(in *Input) { in.Instances = []Instance{awake(0, 1)} }, nil, 0},
		{"nothing is put to sleep during a deployment", func(in *Input) {
			in.Deploying = true
			in.Instances = []Instance{awake(time.Hour, 0)}
		}, nil, 0},
		{"a sleeping instance stays asleep", func(in *Input) { in.Instances = []Instance{asleep(nil)} }, nil, 0},
		{"a user wakes it", func(in *Input) { in.Instances = []Instance{asleep(byUser)} }, []string{"wake woken by bob"}, 0},
		{"a player who joins wakes it", func(in *Input) { in.Instances = []Instance{asleep(called)} }, []string{"wake player ann joined"}, 0},
		{"but not in maintenance", func(in *Input) {
			in.Closed = true
			in.Instances = []Instance{asleep(called)}
		}, nil, 0},
		{"a user wakes it also then", func(in *Input) {
			in.Closed = true
			in.Instances = []Instance{asleep(byUser)}
		}, []string{"wake woken by bob"}, 0},
		{"load wakes one", func(in *Input) { in.Instances = []Instance{awake(0, 90), asleep(nil), asleep(nil)} }, []string{"wake the load of the group needs it: 90 players"}, 0},
		{"but not if another instance comes soon", func(in *Input) {
			in.Coming = 1
			in.Instances = []Instance{awake(0, 90), asleep(nil)}
		}, nil, 0},
		{"an instance that the load needs stays awake", func(in *Input) {
			in.Spec.Scaling.BufferSlots = 150
			in.Instances = []Instance{awake(time.Hour, 0), awake(time.Hour, 0)}
		}, nil, 0},
		{"the youngest sleeps first", func(in *Input) {
			in.Spec.Scaling.BufferSlots = 50
			in.Instances = []Instance{awake(time.Hour, 0), awake(time.Hour, 0)}
		}, []string{"sleep asleep because"}, 0},
	}
	for _, c := range cases {
		in := Input{Spec: spec()}
		c.in(&in)
		steps, wake := Decide(in, now)
		if len(steps) != len(c.want) {
			t.Errorf("%s: %d steps, want %d", c.rule, len(steps), len(c.want))
			continue
		}
		for n, s := range steps {
			got := "sleep " + s.Message
			if s.Wake {
				got = "wake " + s.Message
			}
			if !strings.HasPrefix(got, c.want[n]) {
				t.Errorf("%s: %q, want %q", c.rule, got, c.want[n])
			}
		}
		if c.wake != 0 && wake.Sub(now) != c.wake || c.wake == 0 && !wake.IsZero() {
			t.Errorf("%s: looks again at %v", c.rule, wake)
		}
	}
}

// Without joins, a decision is followed by none: nothing sleeps and wakes in a loop.
func TestConstantEmptinessIsAnsweredOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{Spec: spec(), Coming: rapid.IntRange(0, 2).Draw(t, "coming")}
		in.Spec.Scaling.BufferSlots = rapid.IntRange(0, 400).Draw(t, "buffer")
		in.Spec.Scaling.Mode = rapid.SampledFrom([]fleet.ScalingMode{fleet.ScalingDynamic, fleet.ScalingStatic}).Draw(t, "mode")
		for range rapid.IntRange(0, 8).Draw(t, "instances") {
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				in.Instances = append(in.Instances, asleep(nil))
			case 1:
				in.Instances = append(in.Instances, awake(0, rapid.IntRange(1, 100).Draw(t, "players")))
			default:
				in.Instances = append(in.Instances, awake(time.Hour, 0))
			}
		}
		for range 3 {
			steps, _ := Decide(in, now)
			for n := range in.Instances {
				for _, s := range steps {
					if s.Instance != in.Instances[n].Instance {
						continue
					}
					if !s.Wake && in.Instances[n].EmptySince.IsZero() {
						t.Fatal("an instance that must stay awake is put to sleep")
					}
					if in.Instances[n] = asleep(nil); s.Wake {
						in.Instances[n] = awake(time.Hour, 0)
					}
				}
			}
			if steps, _ = Decide(in, now); len(steps) > 0 && steps[0].Wake {
				t.Fatalf("wakes again: %s", steps[0].Message)
			} else if len(steps) > 0 {
				continue // those that were woken for the load
			}
			return
		}
		t.Fatal("does not settle")
	})
}
