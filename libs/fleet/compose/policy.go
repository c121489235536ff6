package compose

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/policy"
)

// Asks returns what a plan wants of the policies of nodes, as far as it is known before a node is chosen:
// an image with placeholders is left out.
func Asks(p *fleet.Plan) policy.Ask {
	image := p.ImageReference()
	if len(configfile.PlaceholdersIn(image)) > 0 {
		image = ""
	}
	return policy.AskOf(p.Runtime == fleet.RuntimeDocker, p.Confine, p.Container, image)
}
