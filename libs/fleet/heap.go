package fleet

import (
	"regexp"
	"strconv"
	"strings"
)

// maxHeap is how a Java command bounds its heap: -Xmx2048M, -Xmx2g, bytes without a unit.
var maxHeap = regexp.MustCompile(`(?:^|\s)['"]?-Xmx([0-9]{1,12})([kKmMgGtT]?)['"]?(?:\s|$)`)

// HeapOf is the Java heap a command asks for, in MiB; 0 when it does not say. The last
// one counts, as it does for Java.
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
	return int(min(n, maxMemoryMiB))
}

// MemoryLimitMiB is what an instance that reserves so much memory is held to. It is that,
// but for a Java command whose heap alone may fill it: beside the heap a Java server
// needs what HeapMiB leaves, or it would be killed for running as it was told. A heap
// larger than the reservation gets nothing added. 0 is no limit.
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
