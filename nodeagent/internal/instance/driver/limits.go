package driver

import (
	"context"
	"fmt"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// limits are the limits of a plan's run.
func limits(p fleet.Plan, command string) runtime.Limits {
	return runtime.Limits{
		MemoryMiB: compose.MemoryLimitMiB(p.Resources.MemoryMiB, command), CPU: p.CPULimit, CPUWeight: p.Resources.CPU,
		Processes: p.Limits.Processes, IOWeight: p.Limits.IOWeight,
	}
}

// limitNotes lists what an operator should know about a plan's limits on this node. A limit
// of all instances is in the node's record only. A container engine enforces its own limits.
func (d *Deps) limitNotes(p fleet.Plan, command string) (notes []string) {
	held := d.Node().Limits
	for _, l := range []struct {
		wanted      bool
		limit, name string
	}{
		{p.CPULimit > 0, fleet.LimitCPU, "cpuLimit"},
		{p.Limits.Processes > 0, fleet.LimitProcesses, "limits.processes"},
		{p.Limits.IOWeight > 0, fleet.LimitIO, "limits.ioWeight"},
	} {
		if l.wanted && !held.Holds(l.limit) && p.Runtime != fleet.RuntimeDocker {
			notes = append(notes, fmt.Sprintf("%s is not enforced on this node (%s)", l.name, held.Why))
		}
	}
	memory := p.Resources.MemoryMiB
	switch heap, limit := compose.HeapOf(command), compose.MemoryLimitMiB(memory, command); {
	case memory > 0 && heap > memory:
		notes = append(notes, fmt.Sprintf("its Java heap may grow to %d MiB, beyond its limit of %d MiB: it would be killed then", heap, memory))
	case limit > memory:
		notes = append(notes, fmt.Sprintf("a Java heap of %d MiB leaves too little of %d MiB for the rest of the process: the limit is %d MiB", heap, memory, limit))
	}
	return notes
}

// watchDiskLimit measures a run's directory until the run ends, if the plan limits it.
func (i *Instance) watchDiskLimit(ctx context.Context, p runtime.Process) {
	m := i.entry.Machine
	if m.Plan.Limits.DiskMiB <= 0 {
		return
	}
	run, limit := m.Run, m.Plan.Limits.DiskMiB
	dir := i.deps.Workspace.Dir(m.Placement, m.Plan)
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
		i.deps.Disk.Watch(within, []string{dir, i.deps.TmpDir(i.id)}, func(used int64) {
			i.SetDiskUse(used)
			if used <= int64(limit)<<20 {
				return
			}
			i.Send(machine.DiskExceeded{Run: run, Message: fmt.Sprintf(
				"its directory %s holds %d MiB, its group allows %d: remove what it does not need, or raise limits.diskMb", dir, used>>20, limit)})
		})
	})
}
