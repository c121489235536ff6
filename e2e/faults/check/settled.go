package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/orreryhq/orrery/e2e/faults/history"
	"github.com/orreryhq/orrery/e2e/faults/record"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/naming"
)

// Settled returns the differences from the desired state: each group has its wanted number
// of instances, all ONLINE and with the names that it declares, if any, and ONLINE records and
// living processes match one to one. live are the runs whose process exists.
func Settled(s *history.State, wanted map[fleet.GroupName]int, live []record.Run) []string {
	var out []string
	instances := s.Instances()
	count, named := map[fleet.GroupName]int{}, map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(instances)) {
		i := instances[id]
		if state := i.State(); state == fleet.Online {
			count[i.Intent.Group]++
			if g, ok := s.Groups[i.Intent.Group]; ok && naming.Unlisted(&g, i.Intent.Name) {
				out = append(out, fmt.Sprintf("%s (%s) is ONLINE, and %s declares other names", i.Intent.Name, id, g.Name))
			}
			if named[i.Intent.Name] {
				out = append(out, fmt.Sprintf("two instances that are ONLINE are called %s", i.Intent.Name))
			}
			named[i.Intent.Name] = true
			if i.Intent.Desired != fleet.DesiredRunning {
				out = append(out, fmt.Sprintf("%s runs though it shall stop", i.Intent.Name))
			}
		} else if !state.Terminal() {
			why, text := i.Why()
			out = append(out, fmt.Sprintf("%s (%s) is %s: %s, %s", i.Intent.Name, id, state, why, text))
		}
	}
	for _, g := range slices.Sorted(maps.Keys(wanted)) {
		if count[g] != wanted[g] {
			out = append(out, fmt.Sprintf("%s has %d instances ONLINE, %d are declared", g, count[g], wanted[g]))
		}
	}
	return append(out, unmatched(instances, live)...)
}

// unmatched returns living processes without an ONLINE record, and the reverse.
func unmatched(instances map[fleet.InstanceID]*fleet.Instance, live []record.Run) []string {
	var out []string
	lives := map[int]bool{}
	for _, r := range live {
		lives[r.PID] = true
		i := instances[fleet.InstanceID(r.Instance)]
		switch {
		case i == nil:
			out = append(out, fmt.Sprintf("orphan: %v lives without a record", r))
		case i.State() != fleet.Online || i.Status.PID != r.PID:
			out = append(out, fmt.Sprintf("orphan: %v lives, but its record says %s with pid %d", r, i.State(), pid(i)))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(instances)) {
		if i := instances[id]; i.State() == fleet.Online && !lives[pid(i)] {
			out = append(out, fmt.Sprintf("lost: %s (%s) is ONLINE with pid %d, which does not live", i.Intent.Name, id, pid(i)))
		}
	}
	return out
}

func pid(i *fleet.Instance) int {
	if i.Status == nil {
		return 0
	}
	return i.Status.PID
}
