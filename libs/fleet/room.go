package fleet

import (
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// LabelsUnder are the labels that count: the operator's, once there are any, else
// the node's own. desired may be nil. Nobody may change them.
func (n Node) LabelsUnder(desired *NodeDesired) map[string]string {
	if desired != nil && desired.Labels != nil {
		return desired.Labels
	}
	return n.Labels
}

// RoomUnder is the room that counts: the operator's, once there is one, else the
// node's own. desired may be nil.
func (n Node) RoomUnder(desired *NodeDesired) NodeRoom {
	if desired != nil && desired.Room != nil {
		return *desired.Room
	}
	return n.Room
}

// Of is what instances may reserve of a capacity: CPU as often as the factor says,
// less what is kept for the host, never below nothing. The error is nil for a
// capacity that can be; else it is Invalid and names the parts that cannot, which
// count as nothing.
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
		MemoryMiB: part("memoryMb", capacity.MemoryMiB, maxMemoryMiB),
		CPU:       part("cpu", capacity.CPU, maxCPU),
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
		return free, errs.Field("capacity", "no machine has %s: it counts as nothing until the agent reports something else", strings.Join(wrong, " and "))
	}
	return free, nil
}
