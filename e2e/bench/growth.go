package main

import (
	"fmt"
	"os"
)

// growth is the memory growth of a process since it was idle. It uses the kernel's peak of
// resident memory (VmHWM), including pages of the program, so it misses no peak.
type growth struct {
	pid  int
	idle float64 // VmRSS in MiB
}

// watchMemory records the memory of an idle process and resets the kernel's peak.
func watchMemory(pid int) (*growth, error) {
	idle, err := memoryMiB(pid, "VmRSS:")
	if err != nil {
		return nil, err
	}
	m := &growth{pid: pid, idle: idle}
	return m, m.again()
}

// again resets the kernel's peak.
func (m *growth) again() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", m.pid), []byte("5"), 0)
}

// grown returns the peak above the idle memory, in MiB.
func (m *growth) grown() (float64, error) {
	most, err := memoryMiB(m.pid, "VmHWM:")
	return most - m.idle, err
}
