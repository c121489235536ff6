package deployment_test

import (
	"slices"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
)

func instance(id fleet.InstanceID, number int64, state fleet.State) *fleet.Instance {
	i := &fleet.Instance{Intent: fleet.Intent{ID: id, Desired: fleet.DesiredRunning, Generation: 1, Deployment: number, GroupRevision: 4}}
	i.Status = &fleet.Status{Generation: 1, State: state}
	return i
}

func TestStepsAreInOrder(t *testing.T) {
	full, empty, starting := instance("full", 0, fleet.Online), instance("empty", 0, fleet.Online), instance("starting", 0, fleet.Starting)
	frozen, lost, ended, current := instance("frozen", 0, fleet.Online), instance("lost", 0, fleet.Offline), instance("ended", 0, fleet.Stopped), instance("current", 1, fleet.Online)
	frozen.Intent.Frozen = true
	d := deployment.Deployment{Number: 1}
	steps := deployment.Steps([]*fleet.Instance{full, frozen, empty, lost, starting, ended, current},
		func(i *fleet.Instance) bool { return d.Current(i, nil, nil) },
		func(i *fleet.Instance) int {
			if i == full {
				return 3
			}
			return 0
		})
	var got []fleet.InstanceID
	for _, s := range steps {
		got = append(got, s.Instance.Intent.ID)
		if s.Reason == "" {
			t.Errorf("%s has no reason", s.Instance.Intent.ID)
		}
	}
	if want := []fleet.InstanceID{"starting", "empty", "full"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestARollbackKeepsWhatItRestores(t *testing.T) {
	ref := content.TemplateRef{Group: "default", Name: "base"}
	restored := &deployment.Deployment{Number: 1, GroupRevision: 4, Templates: []content.TemplateHead{{TemplateRef: ref, Digest: "one"}}}
	d := deployment.Deployment{Number: 3, Restores: 1}
	planOf := func(digest string) *fleet.Plan {
		return &fleet.Plan{Layers: []fleet.PlanLayer{{TemplateRef: ref, Digest: digest}}}
	}
	changed := instance("changed", 1, fleet.Online)
	changed.Intent.GroupRevision = 5
	for _, test := range []struct {
		what string
		i    *fleet.Instance
		plan *fleet.Plan
		want bool
	}{
		{"the same settings and templates", instance("same", 1, fleet.Online), planOf("one"), true},
		{"another template version", instance("other", 1, fleet.Online), planOf("two"), false},
		{"other settings", changed, planOf("one"), false},
		{"the deployment that is rolled back", instance("bad", 2, fleet.Online), planOf("one"), false},
		{"an older deployment", instance("old", 0, fleet.Online), planOf("one"), false},
		{"an unknown plan", instance("unknown", 1, fleet.Online), nil, false},
		{"the rollback itself", instance("new", 3, fleet.Online), planOf("two"), true},
	} {
		if got := d.Current(test.i, test.plan, restored); got != test.want {
			t.Errorf("%s is up to date: %v", test.what, got)
		}
	}
}

func TestTheFirstWaveIsRoundedUp(t *testing.T) {
	for _, test := range []struct{ instances, percent, total, want int }{
		{0, 10, 5, 1}, {0, 50, 5, 3}, {0, 100, 5, 5}, {2, 0, 5, 2}, {0, 10, 0, 1},
	} {
		if got := (deployment.Options{CanaryInstances: test.instances, CanaryPercent: test.percent}).Wave(test.total); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}
