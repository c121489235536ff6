package schedule

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestOverlaysApplyInTheOrderOfTheirNames(t *testing.T) {
	one, two, nine, on, off := 1, 2, 9, true, false
	active := func(name string, c Changes) ActiveOverlay {
		return ActiveOverlay{Name: name, On: true, Groups: []fleet.GroupName{"lobby"}, Changes: c}
	}
	ended := active("z", Changes{Min: &one})
	ended.On = false
	for name, c := range map[string]struct {
		overlays []ActiveOverlay
		min, max int
		on       bool
		message  string
	}{
		"none":                                     {nil, 3, 5, false, "own"},
		"one that has ended":                       {[]ActiveOverlay{ended}, 3, 5, false, "own"},
		"the minimum":                              {[]ActiveOverlay{active("a", Changes{Min: &one})}, 1, 5, false, "own"},
		"of two the last one":                      {[]ActiveOverlay{active("a", Changes{Min: &one}), active("b", Changes{Min: &two})}, 2, 5, false, "own"},
		"different fields":                         {[]ActiveOverlay{active("a", Changes{Min: &one}), active("b", Changes{Max: &nine})}, 1, 9, false, "own"},
		"a minimum above the maximum":              {[]ActiveOverlay{active("a", Changes{Min: &nine})}, 5, 5, false, "own"},
		"a maximum below the minimum":              {[]ActiveOverlay{active("a", Changes{Max: &two})}, 2, 2, false, "own"},
		"maintenance with a message":               {[]ActiveOverlay{active("a", Changes{Maintenance: &on, Message: "soon"})}, 3, 5, true, "soon"},
		"maintenance that another one turns off":   {[]ActiveOverlay{active("a", Changes{Maintenance: &on}), active("b", Changes{Maintenance: &off})}, 3, 5, false, "own"},
		"an overlay of another group":              {[]ActiveOverlay{{Name: "a", On: true, Groups: []fleet.GroupName{"game"}, Changes: Changes{Min: &one}}}, 3, 5, false, "own"},
		"one that selects the group by its labels": {[]ActiveOverlay{{Name: "a", On: true, Selector: map[string]string{"kind": "hub"}, Changes: Changes{Min: &one}}}, 1, 5, false, "own"},
		"one that selects more labels":             {[]ActiveOverlay{{Name: "a", On: true, Selector: map[string]string{"kind": "hub", "x": "y"}, Changes: Changes{Min: &one}}}, 3, 5, false, "own"},
	} {
		g := &fleet.Group{Name: "lobby", Spec: fleet.GroupSpec{Labels: map[string]string{"kind": "hub"}, Maintenance: fleet.Maintenance{Message: "own"}}}
		g.Spec.Scaling.Min, g.Spec.Scaling.Max = 3, 5
		got := Active{Overlays: c.overlays}.Over(g).Spec
		if got.Scaling.Min != c.min || got.Scaling.Max != c.max || got.Maintenance.On != c.on || got.Maintenance.Message != c.message {
			t.Errorf("%s: minimum %d, maximum %d, maintenance %v %q", name, got.Scaling.Min, got.Scaling.Max, got.Maintenance.On, got.Maintenance.Message)
		}
		if g.Spec.Scaling.Min != 3 || g.Spec.Scaling.Max != 5 || g.Spec.Maintenance.On {
			t.Errorf("%s: the declared group was changed", name)
		}
	}
}

func TestAnOverlayChangesTheScalingMode(t *testing.T) {
	g := &fleet.Group{Name: "lobby"}
	g.Spec.Scaling.Mode = fleet.ScalingDynamic
	a := Active{Overlays: []ActiveOverlay{{Name: "a", On: true, Groups: []fleet.GroupName{"lobby"}, Changes: Changes{Mode: fleet.ScalingManual}}}}
	if got := a.Over(g).Spec.Scaling.Mode; got != fleet.ScalingManual {
		t.Errorf("the mode is %s", got)
	}
	if g.Spec.Scaling.Mode != fleet.ScalingDynamic {
		t.Error("the declared group was changed")
	}
}
