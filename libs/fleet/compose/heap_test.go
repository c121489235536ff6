package compose

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestHeapOfJavaCommands(t *testing.T) {
	for command, want := range map[string]int{
		"java -Xmx2048M -jar server.jar":      2048,
		"java -Xms1G -Xmx2g -jar server.jar":  2048,
		"java -Xmx1G -Xmx3G -jar server.jar":  3072,
		"java '-Xmx512m' -jar server.jar":     512,
		"java -Xmx1073741824 -jar server.jar": 1024,
		"java -Xmx524288k -jar server.jar":    512,
		"java -Xmx2048MB -jar server.jar":     0,
		"./server --note=-Xmx1G":              0,
		"java -jar server.jar":                0,
		"java -Xmx999999999999T -jar s.jar":   fleet.MaxMemoryMiB,
	} {
		if got := HeapOf(command); got != want {
			t.Errorf("%s: %d MiB, want %d", command, got, want)
		}
	}
}

func TestMemoryLimitLeavesRoomBesidesHeap(t *testing.T) {
	for _, c := range []struct {
		memory  int
		command string
		want    int
	}{
		{2048, "java -Xmx1800M -jar s.jar", 2048},
		{2048, "java -Xmx2048M -jar s.jar", 2276},
		{1024, "java -Xmx1G -jar s.jar", 1205},
		{8192, "java -Xmx8G -jar s.jar", 8624},
		{512, "java -Xmx8G -jar s.jar", 512},
		{512, "./server", 512},
		{0, "java -Xmx1G -jar s.jar", 0},
	} {
		if got := MemoryLimitMiB(c.memory, c.command); got != c.want {
			t.Errorf("%d MiB, %s: %d, want %d", c.memory, c.command, got, c.want)
		}
	}
}

func TestHeapWithinReservationFitsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memory := rapid.IntRange(1, 1<<16).Draw(t, "memory")
		heap := rapid.IntRange(1, memory).Draw(t, "heap")
		limit := MemoryLimitMiB(memory, fmt.Sprintf("java -Xmx%dM -jar s.jar", heap))
		if limit < memory || HeapMiB(limit) < heap || limit > memory*5/4+2 {
			t.Fatalf("%d MiB with a heap of %d: %d", memory, heap, limit)
		}
	})
}
