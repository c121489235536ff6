package place

import (
	"fmt"

	"github.com/orreryhq/orrery/libs/fleet"
)

// No host has more; sums of what is below them do not overflow.
const (
	maxMemoryMiB = 1 << 30 // 1 PiB
	maxCPU       = 1 << 24 // 167,772 cores
	maxDiskMiB   = 1 << 40 // 1 EiB
)

// possible reports whether a host can have this much.
func possible(amount, limit int) bool { return amount >= 0 && amount <= limit }

// usable is what instances may reserve of a node: its capacity, the CPU as often as
// its factor says, less what is kept for the host. What is impossible counts as
// nothing, an impossible factor as 1.
func usable(capacity fleet.Resources, r fleet.NodeRoom) fleet.Resources {
	factor := r.CPUFactor
	if !(factor > 0 && factor <= fleet.MaxCPUFactor) { // so that not-a-number is impossible too
		factor = 1
	}
	return fleet.Resources{
		MemoryMiB: less(capacity.MemoryMiB, maxMemoryMiB, 1, r.Reserved.MemoryMiB),
		CPU:       less(capacity.CPU, maxCPU, factor, r.Reserved.CPU),
		DiskMiB:   less(capacity.DiskMiB, maxDiskMiB, 1, r.Reserved.DiskMiB),
	}
}

// less is an amount times a factor, less what is kept.
func less(have, limit int, factor float64, kept int) int {
	if !possible(have, limit) {
		return 0
	}
	return max(0, int(float64(have)*factor)-max(0, kept))
}

// short is how much is missing.
func short(wanted, free int) int { return max(0, wanted-max(0, free)) }

// ofAll says how much of a resource there is for instances, and what is kept for the host.
func ofAll(usable, kept int) string {
	if kept <= 0 {
		return fmt.Sprint(usable)
	}
	return fmt.Sprintf("%d (%d are kept for the host)", usable, kept)
}
