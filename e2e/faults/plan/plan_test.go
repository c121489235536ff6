package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/e2e/faults/plan"
)

var all = plan.Features{Replicas: true, NodeLoss: true, ReplaceStatic: true, Nodes: 3, Disks: true}

func TestASeedIsOneScenario(t *testing.T) {
	for seed := range uint64(50) {
		if d := cmp.Diff(plan.Generate(seed, all), plan.Generate(seed, all)); d != "" {
			t.Errorf("seed %d: %s", seed, d)
		}
	}
}

func TestAScenarioCanBeCarriedOut(t *testing.T) {
	kinds, byHand := map[plan.Kind]int{}, 0
	for seed := range uint64(500) {
		s := plan.Generate(seed, all)
		memory, kills := 0, map[string]int{}
		for _, g := range s.Groups {
			if g.ByHand {
				byHand++
			}
			if g.ByHand && g.Count != g.Final {
				t.Errorf("seed %d: nobody brings %s from %d to %d", seed, g.Name, g.Count, g.Final)
			}
			memory += max(g.Count, g.Final, 6) * g.MemoryMiB
		}
		if memory > s.Nodes*s.MemoryMiB {
			t.Errorf("seed %d: the groups need %d MiB of %d", seed, memory, s.Nodes*s.MemoryMiB)
		}
		if len(s.Faults) < 5 || len(s.Faults) > 10 {
			t.Errorf("seed %d: %d faults", seed, len(s.Faults))
		}
		for _, f := range s.Faults {
			kinds[f.Kind]++
			if f.Kind == plan.KillWorkload {
				kills[f.Target]++
			}
			if !targeted(s, f) {
				t.Errorf("seed %d: %v has no target", seed, f)
			}
		}
		for g, n := range kills {
			if n > 2 {
				t.Errorf("seed %d: %d kills would pause %s", seed, n, g)
			}
		}
	}
	if byHand == 0 {
		t.Error("no seed has a group whose instances are started by hand")
	}
	for _, k := range plan.Kinds() {
		if kinds[k] == 0 {
			t.Errorf("no seed has the fault %q", k)
		}
	}
}

// targeted reports whether a fault's target exists in the scenario.
func targeted(s plan.Scenario, f plan.Fault) bool {
	if f.Peer != "" && !slices.Contains(append(s.MemberNames(), "templatesvc-1"), f.Peer) {
		return false
	}
	switch f.Kind {
	case plan.Outage, plan.Compact:
		return f.Target == ""
	case plan.KillWorkload, plan.Scale, plan.Switch, plan.Deploy:
		return slices.ContainsFunc(s.Groups, func(g plan.Group) bool { return g.Name == f.Target })
	case plan.Move:
		return s.Nodes > 1 && slices.ContainsFunc(s.Groups, func(g plan.Group) bool { return g.Static && g.Has(f.Target) })
	case plan.PowerCut, plan.FillDisk, plan.Drain:
		return slices.Contains(s.NodeIDs(), f.Target)
	}
	return slices.Contains(append(s.Services(), s.MemberNames()...), f.Target)
}

func TestEveryServiceHasAWrongClockAndGatewaysTakeEachOthersTokens(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(100) {
		s := plan.Generate(seed, all)
		var gateways []time.Duration
		for _, name := range s.Services() {
			if len(s.Clocks[name]) == 0 {
				t.Fatalf("seed %d: the clock of %s is not set", seed, name)
			}
			kind, _, _ := strings.Cut(name, "-")
			for _, ahead := range s.Clocks[name] {
				seen[kind] = seen[kind] || ahead.Abs() >= 12*time.Hour
			}
			if kind == "apigateway" {
				gateways = append(gateways, s.Clocks[name]...)
			}
		}
		if apart := slices.Max(gateways) - slices.Min(gateways); apart >= 24*time.Hour {
			t.Errorf("seed %d: the clocks of gateways are %v apart", seed, apart)
		}
	}
	for _, kind := range []string{"apigateway", "enforcer", "node", "scheduler", "templatesvc"} {
		if !seen[kind] {
			t.Errorf("no clock of a %s is half a day off", kind)
		}
	}
}
