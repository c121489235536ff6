package local

import (
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
)

// selectInstances returns the instances of a stop by name and id, without ended ones. Invalid unless it
// selects them in exactly one way, NotFound if a named one is not on the node.
func selectInstances(all map[fleet.InstanceID]driver.Live, s client.Stop) ([]fleet.InstanceID, error) {
	ways := 0
	for _, given := range []bool{len(s.Instances) > 0, s.Group != "", s.All} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return nil, errs.Field("instances", "or a group or all must be given: say what to stop by exactly one of the three")
	}
	var missing []string
	for _, id := range s.Instances {
		if _, ok := all[id]; !ok {
			missing = append(missing, string(id))
		}
	}
	if len(missing) > 0 {
		return nil, errs.New(errs.NotFound, "not on this node, so nothing was stopped: %s", strings.Join(missing, ", "))
	}
	chosen := []fleet.InstanceID{}
	known := false
	for id, l := range all {
		if !s.All && l.Status.Group != s.Group && !slices.Contains(s.Instances, id) {
			continue
		}
		known = true
		if l.Status.State != "" && !l.Status.State.Terminal() {
			chosen = append(chosen, id)
		}
	}
	if !known && s.Group != "" {
		return nil, errs.New(errs.NotFound, "no instance of the group %s is on this node", s.Group)
	}
	slices.SortFunc(chosen, func(a, b fleet.InstanceID) int { return byName(all[a], all[b]) })
	return chosen, nil
}

// sorted returns all instances by name and id.
func sorted(all map[fleet.InstanceID]driver.Live) []driver.Live {
	return slices.SortedFunc(maps.Values(all), byName)
}

func byName(a, b driver.Live) int {
	if c := natural(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(string(a.Status.Instance), string(b.Status.Instance))
}

// natural orders g-2 before g-10. Other names are in the order of their letters.
func natural(a, b string) int {
	groupA, numberA := cut(a)
	groupB, numberB := cut(b)
	if groupA == groupB && len(numberA) != len(numberB) {
		return len(numberA) - len(numberB)
	}
	return strings.Compare(a, b)
}

func cut(name string) (group, number string) {
	group = strings.TrimRight(name, "0123456789")
	return group, name[len(group):]
}
