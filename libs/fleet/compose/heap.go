package compose

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
)

// maxHeap matches the heap limit of a Java command: -Xmx2048M, -Xmx2g, or bytes without a unit.
var maxHeap = regexp.MustCompile(`(?:^|\s)['"]?-Xmx([0-9]{1,12})([kKmMgGtT]?)['"]?(?:\s|$)`)

// HeapOf returns the Java heap limit of a command in MiB, 0 without one. Like Java, it uses the
// last -Xmx.
func HeapOf(command string) int {
	all := maxHeap.FindAllStringSubmatch(strings.ReplaceAll(command, " ", "  "), -1)
	if len(all) == 0 {
		return 0
	}
	last := all[len(all)-1]
	n, err := strconv.ParseInt(last[1], 10, 64)
	if err != nil {
		return 0
	}
	switch strings.ToLower(last[2]) {
	case "":
		n >>= 20
	case "k":
		n >>= 10
	case "g":
		n <<= 10
	case "t":
		n <<= 20
	}
	return int(min(n, fleet.MaxMemoryMiB))
}

// MemoryLimitMiB returns the memory limit of an instance that reserves memoryMiB. It is the
// reservation, except for a Java command whose heap would fill it: a Java server needs memory
// besides its heap (see HeapMiB), and would be killed at a lower limit. If the heap is larger than
// the reservation, the limit is not raised. 0 means no limit.
func MemoryLimitMiB(memoryMiB int, command string) int {
	heap := HeapOf(command)
	if memoryMiB == 0 || heap > memoryMiB {
		return memoryMiB
	}
	limit := memoryMiB
	for HeapMiB(limit) < heap {
		limit += max(1, (heap-HeapMiB(limit))/2)
	}
	return limit
}
