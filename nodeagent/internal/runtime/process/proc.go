package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// bootID is the identity of the running kernel.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// stat are the fields of /proc/<pid>/stat that matter here.
type stat struct {
	state   byte
	session int
	start   uint64
}

// readStat reads a process. ok is false when there is none.
func readStat(pid int) (stat, bool) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, false
	}
	// The command, in parentheses, may hold anything: count fields from its end.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return stat{}, false
	}
	session, _ := strconv.Atoi(f[3])
	start, err := strconv.ParseUint(f[19], 10, 64)
	return stat{state: f[0][0], session: session, start: start}, err == nil
}

// lives reports whether a remembered process still runs: same id, same start
// time, and not a zombie.
func lives(id runtime.ProcessID) bool {
	s, ok := readStat(id.PID)
	return ok && s.start == id.Start && s.state != 'Z' && s.state != 'X'
}

// marked are the processes that belong to an instance: those in its session, and
// those that carry its mark in their environment, wherever they forked to.
func marked(instance string, session int) []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	mark := []byte("\x00ORRERY_INSTANCE_ID=" + instance + "\x00")
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		s, ok := readStat(pid)
		if !ok || s.state == 'Z' || s.state == 'X' {
			continue
		}
		if session > 1 && s.session == session || carries(pid, mark) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func carries(pid int, mark []byte) bool {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	return err == nil && bytes.Contains(append([]byte{0}, env...), mark)
}

// signalNames are the signals by the numbers a shell reports them with.
var signalNames = map[syscall.Signal]string{
	syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT", syscall.SIGILL: "ILL",
	syscall.SIGTRAP: "TRAP", syscall.SIGABRT: "ABRT", syscall.SIGBUS: "BUS", syscall.SIGFPE: "FPE",
	syscall.SIGKILL: "KILL", syscall.SIGUSR1: "USR1", syscall.SIGSEGV: "SEGV", syscall.SIGUSR2: "USR2",
	syscall.SIGPIPE: "PIPE", syscall.SIGALRM: "ALRM", syscall.SIGTERM: "TERM", syscall.SIGXCPU: "XCPU",
	syscall.SIGXFSZ: "XFSZ", syscall.SIGSYS: "SYS",
}
