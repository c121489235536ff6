package main

import (
	"fmt"
	"os"
)

// growth is what a process of ours has grown by since it did nothing: the kernel's own
// mark of the most that was resident (VmHWM), pages of its program included, so nothing
// is missed between two looks.
type growth struct {
	pid  int
	idle float64 // VmRSS in MiB
}

// watchMemory notes what a process has that does nothing, and has the kernel begin anew.
func watchMemory(pid int) (*growth, error) {
	idle, err := memoryMiB(pid, "VmRSS:")
	if err != nil {
		return nil, err
	}
	m := &growth{pid: pid, idle: idle}
	return m, m.again()
}

// again has the kernel forget the most there was.
func (m *growth) again() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", m.pid), []byte("5"), 0)
}

// grown is the most it had since, above what it had at first, in MiB.
func (m *growth) grown() (float64, error) {
	most, err := memoryMiB(m.pid, "VmHWM:")
	return most - m.idle, err
}
