package guard

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// neverKilled is the oom_score_adj of a process that the OOM killer spares.
const neverKilled = "-1000"

// protect keeps the guard working on a host without free memory: the OOM killer spares it, and
// its memory is not swapped out. The error names what the host refuses, as it does to an
// agent that is not root. The guard continues anyway.
func protect() error {
	err := os.WriteFile("/proc/self/oom_score_adj", []byte(neverKilled), 0)
	if err != nil {
		err = fmt.Errorf("the kernel may kill this guard for memory: %w", err)
	}
	if locked := lockMemory(); locked != nil {
		err = errors.Join(err, fmt.Errorf("the kernel may swap this guard out: %w", locked))
	}
	return err
}

// lockMemory locks the program at once and other pages when they are first used. The code of
// the guard must not be read from a disk under memory pressure. Locking everything at once
// would allocate the address space that Go reserves for its heap.
func lockMemory() error {
	if !mayLock() { // a limit would make a later allocation fail
		return errors.New("the limit on locked memory (RLIMIT_MEMLOCK) is not unlimited")
	}
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("mlockall: %w", err)
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var from, to uintptr
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x", &from, &to); err != nil || !strings.HasSuffix(lines.Text(), program) {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MLOCK, from, to-from, 0); errno != 0 {
			return fmt.Errorf("mlock: %w", errno)
		}
	}
	return lines.Err()
}

// mayLock reports whether this process may lock any amount of memory.
func mayLock() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if unix.Capget(&header, &has[0]) == nil && has[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0 {
		return true
	}
	var limit unix.Rlimit
	return unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil && limit.Cur == unix.RLIM_INFINITY
}
