package compose

import (
	"github.com/orreryhq/orrery/libs/fleet"
)

// AboutStored, AboutGroup and AboutTemplate return the context a value is sealed for. It cannot be
// opened in another context. AboutGroup also applies to values given at the start of an instance
// of the group.
func AboutStored(name string) string { return "secret/" + name }

func AboutGroup(g fleet.GroupName, variable string) string {
	return "group/" + string(g) + "/" + variable
}

func AboutTemplate(variable string) string { return "template/" + variable }

// SecretRefs returns the references of an instance's secret variables by variable: the plan's,
// overridden by those given at start. Variables without a reference are left out.
func SecretRefs(p fleet.Plan, pl fleet.Placement) map[string]string {
	out := map[string]string{}
	for key, ref := range p.Secrets {
		if given, ok := pl.Values[key]; ok {
			ref = given
		}
		if ref != "" {
			out[key] = ref
		}
	}
	return out
}
