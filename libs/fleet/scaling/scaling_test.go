package scaling

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
)

// usual is the number of slots of an instance in these tests.
const usual = 10

func TestExceeds(t *testing.T) {
	full := Instance{Players: 8}
	tests := []struct {
		rule    string
		rules   fleet.Scaling
		load    Load
		want    fleet.Reason
		missing int
	}{
		{"no instances and no players need nothing", fleet.Scaling{UpThreshold: 0.8}, Load{}, "", 0},
		{"empty instances need nothing", fleet.Scaling{UpThreshold: 0.8}, Load{}.With(3, Instance{}, usual), "", 0},
		{"below the threshold", fleet.Scaling{UpThreshold: 0.8}, Load{}.With(1, Instance{Players: 7}, usual), "", 0},
		{"the threshold is reached", fleet.Scaling{UpThreshold: 0.8}, Load{}.With(1, full, usual), fleet.ReasonFullness, 1},
		{"several are missing when the load needs them", fleet.Scaling{UpThreshold: 0.25}, Load{}.With(2, full, usual), fleet.ReasonFullness, 5},
		{"players of an instance that takes no new ones need slots elsewhere", fleet.Scaling{UpThreshold: 0.8}, Load{}.With(1, Instance{Players: 3, Closed: true}, usual).With(1, Instance{Players: 5}, usual), fleet.ReasonFullness, 1},
		{"the reported number of slots counts", fleet.Scaling{UpThreshold: 0.8}, Load{}.With(1, Instance{Players: 8, MaxPlayers: 20}, usual), "", 0},
		{"an unknown number of slots is never full", fleet.Scaling{UpThreshold: 0.8, BufferSlots: 5}, Load{}.With(1, full, 0), "", 0},
		{"a buffer of slots without instances", fleet.Scaling{UpThreshold: 0.8, BufferSlots: 15}, Load{}, fleet.ReasonBuffer, 2},
		{"a buffer of slots that is there", fleet.Scaling{UpThreshold: 0.8, BufferSlots: 15}, Load{}.With(2, Instance{}, usual), "", 0},
		{"a buffer of percent without instances needs nothing", fleet.Scaling{UpThreshold: 0.8, BufferPercent: 50}, Load{}, "", 0},
		{"a buffer of percent", fleet.Scaling{UpThreshold: 1, BufferPercent: 50}, Load{}.With(1, Instance{Players: 6}, usual), fleet.ReasonBuffer, 1},
		{"all are degraded", fleet.Scaling{UpThreshold: 0.8}, Load{}.With(2, Instance{Players: 1, TPS: 12}, usual), fleet.ReasonDegraded, 1},
		{"one of two is degraded", fleet.Scaling{UpThreshold: 0.8}, Load{}.With(1, Instance{Players: 1, TPS: 12}, usual).With(1, Instance{Players: 1, TPS: 19}, usual), "", 0},
		{"an empty slow instance is not degraded", fleet.Scaling{UpThreshold: 0.8}, Load{}.With(1, Instance{TPS: 12}, usual), "", 0},
		{"unreported ticks are not degraded", fleet.Scaling{UpThreshold: 0.8}, Load{}.With(1, Instance{Players: 1}, usual), "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			why, message := tt.load.Exceeds(&tt.rules)
			if why != tt.want || (why != "") != (message != "") {
				t.Errorf("Exceeds = %q, %q, want %q", why, message, tt.want)
			}
			if got := tt.load.Missing(&tt.rules, usual, 100); got != tt.missing {
				t.Errorf("Missing = %d, want %d", got, tt.missing)
			}
		})
	}
}

func TestPlayersOfClosedInstancesStartNothingAlone(t *testing.T) {
	closed := Load{}.With(1, Instance{Players: 3, Closed: true}, usual)
	if why, _ := closed.Needs(&fleet.Scaling{UpThreshold: 0.8}); why != "" {
		t.Errorf("needs more because of %s", why)
	}
	if why, _ := closed.Needs(&fleet.Scaling{UpThreshold: 0.8, BufferSlots: 5}); why == "" {
		t.Error("a buffer needs no instances")
	}
	if why, _ := closed.With(1, Instance{}, usual).Needs(&fleet.Scaling{UpThreshold: 0.2}); why != fleet.ReasonFullness {
		t.Errorf("needs more because of %q, want the fullness", why)
	}
	if why, _ := closed.Exceeds(&fleet.Scaling{UpThreshold: 0.8}); why == "" {
		t.Error("the last instance that takes players is not needed")
	}
}

func TestMissingIsTheLeastThatIsEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := fleet.Scaling{
			UpThreshold: rapid.Float64Range(0.05, 1).Draw(t, "threshold"), BufferSlots: rapid.IntRange(0, 40).Draw(t, "slots"),
			BufferPercent: rapid.IntRange(0, 99).Draw(t, "percent"),
		}
		var l Load
		for range rapid.IntRange(0, 5).Draw(t, "instances") {
			l = l.With(1, Instance{
				Players: rapid.IntRange(0, 12).Draw(t, "players"), MaxPlayers: rapid.IntRange(0, 12).Draw(t, "max"),
				TPS: rapid.Float64Range(0, 20).Draw(t, "tps"), Closed: rapid.Bool().Draw(t, "closed"),
			}, usual)
		}
		const most = 10_000
		n := l.Missing(&rules, usual, most)
		if why, _ := l.With(n, Instance{}, usual).Exceeds(&rules); why != "" {
			t.Fatalf("%d more are not enough: %s", n, why)
		}
		if n > 0 {
			if why, _ := l.With(n-1, Instance{}, usual).Exceeds(&rules); why == "" {
				t.Fatalf("%d more are enough, not %d", n-1, n)
			}
		}
	})
}

func TestTarget(t *testing.T) {
	spec := func(edit func(*fleet.GroupSpec)) *fleet.GroupSpec {
		s := fleet.DefaultSpec()
		s.Scaling.Min, s.Scaling.Max = 2, 5
		edit(&s)
		return &s
	}
	tests := []struct {
		rule    string
		spec    *fleet.GroupSpec
		decided int
		want    int
	}{
		{"the minimum", spec(func(*fleet.GroupSpec) {}), 0, 2},
		{"the load needs more", spec(func(*fleet.GroupSpec) {}), 4, 4},
		{"never above the maximum", spec(func(*fleet.GroupSpec) {}), 9, 5},
		{"never below the minimum", spec(func(*fleet.GroupSpec) {}), 1, 2},
		{"STATIC keeps the minimum", spec(func(s *fleet.GroupSpec) { s.Scaling.Mode = fleet.ScalingStatic }), 4, 2},
		{"so does a static group", spec(func(s *fleet.GroupSpec) { s.Static.Enabled = true }), 4, 2},
		{"so does a group without a maximum", spec(func(s *fleet.GroupSpec) { s.Scaling.Max = 0 }), 4, 2},
		{"a static group has at most one instance per name", spec(func(s *fleet.GroupSpec) { s.Static.Enabled, s.Static.InstanceNames = true, []string{"a"} }), 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if got := Target(tt.spec, tt.decided); got != tt.want {
				t.Errorf("Target = %d, want %d", got, tt.want)
			}
		})
	}
}

func TestAnExplicitScaleEndsATarget(t *testing.T) {
	g := &fleet.Group{ScaledAt: time.Unix(100, 0)}
	if got := (*Decision)(nil).TargetFor(g); got != 0 {
		t.Errorf("without a decision: %d, want 0", got)
	}
	d := &Decision{Target: 4, ScaledAt: g.ScaledAt}
	if got := d.TargetFor(g); got != 4 {
		t.Errorf("before a scale: %d, want 4", got)
	}
	g.ScaledAt = time.Unix(50, 0) // whatever the clocks of the gateways say
	if got := d.TargetFor(g); got != 0 {
		t.Errorf("after a scale: %d, want 0", got)
	}
}
