package plan

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
)

func TestAWaitingInstanceNoticesWhatItsGroupAsksOfTheNodesPolicies(t *testing.T) {
	boxed := fleet.DefaultSpec()
	boxed.Runtime, boxed.Container = fleet.RuntimeDocker, isolation.Container{Image: "debian", Network: "host", Volumes: []string{"/srv:/srv"}}
	for rule, c := range map[string]struct {
		spec   fleet.GroupSpec
		change func(*fleet.GroupSpec)
		same   bool
	}{
		"nothing":                     {boxed, func(*fleet.GroupSpec) {}, true},
		"the network":                 {boxed, func(s *fleet.GroupSpec) { s.Container.Network = "" }, false},
		"the volumes":                 {boxed, func(s *fleet.GroupSpec) { s.Container.Volumes = []string{"/srv/maps:/srv"} }, false},
		"the image":                   {boxed, func(s *fleet.GroupSpec) { s.Container.Image = "ghcr.io/team/server" }, false},
		"the image of Universe":       {boxed, func(s *fleet.GroupSpec) { s.Env = map[string]string{"CUSTOM_IMAGE": "alpine"} }, false},
		"the user in the container":   {boxed, func(s *fleet.GroupSpec) { s.Container.User = "1000" }, false},
		"the host user":               {fleet.DefaultSpec(), func(s *fleet.GroupSpec) { s.Confine.User = "games" }, false},
		"a container that is not run": {fleet.DefaultSpec(), func(s *fleet.GroupSpec) { s.Container.Network = "host" }, true},
		"another limit":               {boxed, func(s *fleet.GroupSpec) { s.Confine.PrivateTmp = true }, true},
	} {
		t.Run(rule, func(t *testing.T) {
			made := compose.Compose(fleet.Group{Name: "g", Spec: c.spec}, compose.Materials{}, 0)
			c.change(&c.spec)
			if same := asksTheSame(&made, &c.spec); same != c.same {
				t.Errorf("the same: %v", same)
			}
		})
	}
}
