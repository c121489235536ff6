package process

import (
	"bytes"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/nodeagent/internal/cgroup"
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
	parent  int
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
	parent, _ := strconv.Atoi(f[1])
	session, _ := strconv.Atoi(f[3])
	start, err := strconv.ParseUint(f[19], 10, 64)
	return stat{state: f[0][0], parent: parent, session: session, start: start}, err == nil
}

// lives reports whether a remembered process still runs: same id, same start
// time, and not a zombie.
func lives(id runtime.ProcessID) bool {
	s, ok := readStat(id.PID)
	return ok && s.start == id.Start && s.state != 'Z' && s.state != 'X'
}

// childOf is the process whose pid a wrapper has noted in a file, if it is the
// wrapper's child indeed: a number that was recycled since names nobody.
func childOf(wrapper int, path string) runtime.ProcessID {
	pid, err := readNumber(path)
	if err != nil || wrapper == 0 {
		return runtime.ProcessID{}
	}
	if s, ok := readStat(pid); ok && s.parent == wrapper {
		return runtime.ProcessID{PID: pid, Start: s.start}
	}
	return runtime.ProcessID{}
}

// marked are the processes that belong to an instance: those in its session, and
// those that carry its mark in their environment, wherever they forked to. The same
// id may be known to another agent on this host: what names that one, or runs in its
// control groups, is its.
func marked(owner, instance string, session int) []runtime.ProcessID {
	var ids []runtime.ProcessID
	for pid, s := range living() {
		id := runtime.ProcessID{PID: pid, Start: s.start}
		if session > 1 && s.session == session {
			ids = append(ids, id)
			continue
		}
		if of, agent := mark(pid); of == instance && !ownedByAnother(owner, agent, pid) {
			ids = append(ids, id)
		}
	}
	return ids
}

// ownedByAnother reports whether a process with an instance's mark is another
// agent's: agent is whom its environment names, empty when that names nobody.
func ownedByAnother(owner, agent string, pid int) bool {
	if agent != "" {
		return agent != owner
	}
	other := cgroup.OwnerOf(pid)
	return other != "" && other != owner
}

// living are all processes of the host but this one and those that are dead already.
func living() iter.Seq2[int, stat] {
	return func(yield func(int, stat) bool) {
		dir, err := os.Open("/proc")
		if err != nil {
			return
		}
		defer dir.Close()
		names, _ := dir.Readdirnames(-1)
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil || pid == os.Getpid() {
				continue
			}
			s, ok := readStat(pid)
			if ok && s.state != 'Z' && s.state != 'X' && !yield(pid, s) {
				return
			}
		}
	}
}

// The variables that say whose process one is: the instance's and its agent's.
const (
	markName  = "ORRERY_INSTANCE_ID"
	agentName = "ORRERY_AGENT"
)

// A process that is about to become another program shows neither environment nor
// arguments for a moment. It is looked at again this often, this long apart.
const (
	execLooks = 100
	execPause = 500 * time.Microsecond
)

// environ is the environment a process was started with.
func environ(pid int) []string {
	for range execLooks {
		if v := list(pid, "environ"); v != nil {
			return v
		}
		if list(pid, "cmdline") != nil {
			return list(pid, "environ") // started meanwhile, or without any
		}
		if _, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe")); err != nil {
			return nil // of the kernel, or gone
		}
		<-time.After(execPause)
	}
	return nil
}

// mark is the instance and the agent a process says to belong to; empty where it
// says nothing.
func mark(pid int) (instance, agent string) {
	for _, v := range environ(pid) {
		switch name, value, _ := strings.Cut(v, "="); name {
		case markName:
			instance = value
		case agentName:
			agent = value
		}
	}
	return instance, agent
}

// list reads a file of NUL-terminated strings that describes a process.
func list(pid int, file string) []string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// signalNames are the signals by the numbers a shell reports them with.
var signalNames = map[syscall.Signal]string{
	syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT", syscall.SIGILL: "ILL",
	syscall.SIGTRAP: "TRAP", syscall.SIGABRT: "ABRT", syscall.SIGBUS: "BUS", syscall.SIGFPE: "FPE",
	syscall.SIGKILL: "KILL", syscall.SIGUSR1: "USR1", syscall.SIGSEGV: "SEGV", syscall.SIGUSR2: "USR2",
	syscall.SIGPIPE: "PIPE", syscall.SIGALRM: "ALRM", syscall.SIGTERM: "TERM", syscall.SIGXCPU: "XCPU",
	syscall.SIGXFSZ: "XFSZ", syscall.SIGSYS: "SYS",
}
