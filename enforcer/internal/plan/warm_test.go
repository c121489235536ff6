package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
)

func warm(i *fleet.Instance) { i.Intent.Warm = true }

func TestWarmPool(t *testing.T) {
	const m = time.Minute
	for _, c := range []struct {
		rule  string
		setup func(*sim)
		want  []string
	}{
		{"warm instances are started in addition to the maximum", func(s *sim) {
			s.group.Spec.Scaling.Min, s.group.Spec.Scaling.Max = 1, 1
			s.with(0)
		}, []string{"create minimum warm: WarmPool", "create minimum warm: WarmPool"}},
		{"those that are starting count in the pool and not in the group", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(warm)
			s.with(0, warm)
			s.with(0)
		}, nil},
		{"a ready one is promoted when the minimum needs it", func(s *sim) {
			s.group.Spec.Scaling.Min = 1
			s.add(warm)
			s.with(0, warm)
		}, []string{"promote i00002: BelowMinimum", "create minimum warm: WarmPool"}},
		{"or when the load needs it", func(s *sim) {
			s.scaled = decided(3, at(0))
			s.with(80)
			s.with(0, warm)
			s.add(warm)
		}, []string{"promote i00002: Fullness", "create minimum: Fullness", "create minimum warm: WarmPool"}},
		{"surplus ones stop, the youngest first", func(s *sim) {
			s.with(0, warm)
			s.with(0, warm)
			s.with(0, warm)
		}, []string{"stop i00003 by stop: ScaledDown"}},
		{"all stop when the group wants none", func(s *sim) {
			s.group.Spec.Scaling.Mode = fleet.ScalingManual
			s.with(0, warm)
		}, []string{"stop i00001 by stop: ScaledDown"}},
		{"one with players stays", func(s *sim) {
			s.group.Spec.Scaling.WarmPoolMinimum = 0
			s.with(1, warm)
		}, nil},
		{"nothing is started in maintenance", func(s *sim) {
			s.group.Spec.Maintenance.On = true
			s.with(0, warm)
		}, nil},
		{"one on a draining node is replaced", func(s *sim) {
			s.drains[alive] = &fleet.NodeDrain{At: at(-m), TimeoutSeconds: 600}
			s.with(0, warm)
			s.add(warm)
		}, []string{"stop i00001 by stop: NodeDrained", "create minimum warm: WarmPool"}},
		{"one of an earlier deployment is replaced", func(s *sim) {
			s.deployments = []deployment.Joined{{Deployment: &deployment.Deployment{Group: "g", Number: 2}, Progress: &deployment.Progress{Group: "g", Number: 2, State: deployment.Completed}}}
			s.with(0, warm)
			s.with(0, warm, func(i *fleet.Instance) { i.Intent.Deployment = 2 })
		}, []string{"stop i00001 by stop: Deployment", "create minimum warm: WarmPool"}},
		{"a warm instance that crashed is replaced in the pool only", func(s *sim) {
			s.with(0, warm)
			s.add(warm, in(alive, fleet.Crashed, fleet.ReasonExited, at(-m)))
		}, []string{"create minimum warm: WarmPool"}},
		{"the load is that of the other instances", func(s *sim) {
			s.group.Spec.Scaling.WarmPoolMinimum = 1
			s.with(80)
			s.with(0, warm)
		}, []string{"set_scaling: Fullness"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			s := newSim()
			s.limits.KeepFor, s.limits.PrepareFor = time.Hour, 0
			s.group.Spec.Scaling.WarmPoolMinimum = 2
			c.setup(s)
			actions, _ := Group(s.input(), at(0))
			var got []Action
			for _, a := range actions {
				if a.Kind != DeleteDeployment && a.Kind != SetProgress {
					got = append(got, a)
				}
			}
			if lines, want := short(got), strings.Join(c.want, "\n"); lines != want {
				t.Errorf("actions:\n%s\nwant:\n%s", lines, want)
			}
		})
	}
}

func TestCrashesOfWarmInstancesPauseTheGroup(t *testing.T) {
	s := newSim()
	s.group.Spec.Scaling.WarmPoolMinimum = 1
	for range 3 {
		s.add(warm, in(alive, fleet.Crashed, fleet.ReasonExited, at(-time.Second)))
	}
	actions, _ := Group(s.input(), at(0))
	for _, a := range actions {
		if a.Kind == SetCrashLoop {
			return
		}
	}
	t.Errorf("actions:\n%s\nwant a pause", short(actions))
}
