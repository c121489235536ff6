package supervise

import (
	"context"
	"fmt"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// limits are what a plan's run is held to.
func limits(p fleet.Plan, command string) runtime.Limits {
	return runtime.Limits{
		MemoryMiB: fleet.MemoryLimitMiB(p.Resources.MemoryMiB, command), CPU: p.CPULimit, CPUWeight: p.Resources.CPU,
		Processes: p.Limits.Processes, IOWeight: p.Limits.IOWeight,
	}
}

// limitNotes is what an operator should know of how a plan's limits are held here. What
// every instance has stands in the node's record alone; a container engine holds its own.
func (k *Kit) limitNotes(p fleet.Plan, command string) (notes []string) {
	held := k.Node().Limits
	for _, l := range []struct {
		wanted      bool
		limit, name string
	}{
		{p.CPULimit > 0, fleet.LimitCPU, "cpuLimit"},
		{p.Limits.Processes > 0, fleet.LimitProcesses, "limits.processes"},
		{p.Limits.IOWeight > 0, fleet.LimitIO, "limits.ioWeight"},
	} {
		if l.wanted && !held.Holds(l.limit) && p.Runtime != fleet.RuntimeDocker {
			notes = append(notes, fmt.Sprintf("%s is not held on this node (%s)", l.name, held.Why))
		}
	}
	memory := p.Resources.MemoryMiB
	switch heap, limit := fleet.HeapOf(command), fleet.MemoryLimitMiB(memory, command); {
	case memory > 0 && heap > memory:
		notes = append(notes, fmt.Sprintf("its Java heap may grow to %d MiB, beyond its limit of %d MiB: it will be killed then", heap, memory))
	case limit > memory:
		notes = append(notes, fmt.Sprintf("a Java heap of %d MiB leaves too little of %d MiB beside it: it is limited to %d MiB", heap, memory, limit))
	}
	return notes
}

// measure watches what a run's directory holds until it ends, if that is limited.
func (i *Instance) measure(ctx context.Context, p runtime.Process) {
	m := i.entry.Machine
	if m.Plan.Limits.DiskMiB <= 0 {
		return
	}
	run, limit := m.Run, m.Plan.Limits.DiskMiB
	dir := i.kit.Workspace.Dir(m.Placement, m.Plan)
	within, cancel := context.WithCancel(ctx)
	i.helpers.Go(func() {
		defer cancel()
		select {
		case <-p.Exited():
		case <-within.Done():
		}
	})
	i.helpers.Go(func() {
		defer cancel()
		i.kit.Disk.Watch(within, []string{dir, i.kit.TmpDir(i.id)}, func(used int64) {
			i.SetDiskUse(used)
			if used <= int64(limit)<<20 {
				return
			}
			i.Send(machine.Overgrown{Run: run, Message: fmt.Sprintf(
				"its directory %s holds %d MiB, its group allows %d: remove what it does not need, or raise limits.diskMb", dir, used>>20, limit)})
		})
	})
}
