package fleet

import (
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// LabelsUnder returns the effective labels: the operator's if set, otherwise the node's own.
// desired may be nil. Callers must not change the result.
func (n Node) LabelsUnder(desired *NodeDesired) map[string]string {
	if desired != nil && desired.Labels != nil {
		return desired.Labels
	}
	return n.Labels
}

// RoomUnder returns the effective room: the operator's if set, otherwise the node's own. desired
// may be nil.
func (n Node) RoomUnder(desired *NodeDesired) NodeRoom {
	if desired != nil && desired.Room != nil {
		return *desired.Room
	}
	return n.Room
}

// Of returns how much of a capacity instances may reserve: the capacity, with CPU multiplied by
// CPUFactor, minus Reserved, but at least 0. The error is Invalid if the capacity has impossible
// parts. It names them, and they count as 0.
func (r NodeRoom) Of(capacity Resources) (Resources, error) {
	var wrong []string
	part := func(name string, have, limit int) int {
		if have < 0 || have > limit {
			wrong = append(wrong, fmt.Sprintf("%s of %d", name, have))
			return 0
		}
		return have
	}
	all := Resources{
		MemoryMiB: part("memoryMb", capacity.MemoryMiB, MaxMemoryMiB),
		CPU:       part("cpu", capacity.CPU, MaxCPU),
		DiskMiB:   part("diskMb", capacity.DiskMiB, maxDiskMiB),
	}
	if r.CPUFactor > 0 {
		all.CPU = int(float64(all.CPU) * min(r.CPUFactor, MaxCPUFactor))
	}
	free := Resources{
		MemoryMiB: max(0, all.MemoryMiB-max(0, r.Reserved.MemoryMiB)),
		CPU:       max(0, all.CPU-max(0, r.Reserved.CPU)),
		DiskMiB:   max(0, all.DiskMiB-max(0, r.Reserved.DiskMiB)),
	}
	if len(wrong) > 0 {
		return free, errs.Field("capacity", "%s is not a possible capacity: it counts as 0 until the agent reports another value", strings.Join(wrong, " and "))
	}
	return free, nil
}
