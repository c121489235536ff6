package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
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

// isGone tells the one answer that means that there is no such process from a host
// that is out of descriptors or memory, or lets nobody look.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// statSize is more than the 52 numbers and the name of /proc/<pid>/stat take.
const statSize = 2048

// readOnce reads a file that the kernel writes in one piece. It makes half the system calls
// of os.ReadFile, which counts where the file of every process is read: see BenchmarkCensus.
func readOnce(path string, room []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, room)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return room[:n], nil
}

// readStat reads a process. ok is false when there is none; Unavailable when that
// cannot be told.
func readStat(pid int) (s stat, ok bool, err error) {
	var room [statSize]byte
	b, err := readOnce("/proc/"+strconv.Itoa(pid)+"/stat", room[:])
	if isGone(err) {
		return stat{}, false, nil
	}
	if err != nil {
		return stat{}, false, errs.As(errs.Unavailable, "process.readStat", err)
	}
	// The command, in parentheses, may hold anything: count fields from its end.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return stat{}, false, errs.As(errs.Unavailable, "process.readStat", fmt.Errorf("process %d: %q", pid, b))
	}
	parent, _ := strconv.Atoi(f[1])
	session, _ := strconv.Atoi(f[3])
	start, err := strconv.ParseUint(f[19], 10, 64)
	s = stat{state: f[0][0], parent: parent, session: session, start: start}
	return s, err == nil, errs.As(errs.Unavailable, "process.readStat", err)
}

// dead reports whether all that is left of a process is its entry.
func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

// lives reports whether a remembered process still runs: same id, same start
// time, and not a zombie. Unavailable when that cannot be told.
func lives(id runtime.ProcessID) (bool, error) {
	s, ok, err := readStat(id.PID)
	return ok && s.start == id.Start && !s.dead(), err
}

// identify is a process id with its start time, 0 when nothing has it.
func identify(pid int) (runtime.ProcessID, error) {
	s, _, err := readStat(pid)
	return runtime.ProcessID{PID: pid, Start: s.start}, err
}

// noted is the process whose pid a wrapper has noted in a file, zero when it has
// not or the process has gone.
func noted(path string) (runtime.ProcessID, stat, error) {
	pid, err := readNumber(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, strconv.ErrSyntax), errors.Is(err, strconv.ErrRange):
		return runtime.ProcessID{}, stat{}, nil
	case err != nil:
		return runtime.ProcessID{}, stat{}, errs.As(errs.Unavailable, "process.noted", err)
	}
	s, ok, err := readStat(pid)
	if !ok {
		pid = 0
	}
	return runtime.ProcessID{PID: pid, Start: s.start}, s, err
}

// childOf is the process whose pid a wrapper has noted in a file, if it is the
// wrapper's child indeed: a number that was recycled since names nobody.
func childOf(wrapper int, path string) (runtime.ProcessID, error) {
	id, s, err := noted(path)
	if wrapper == 0 || s.parent != wrapper {
		return runtime.ProcessID{}, err
	}
	return id, err
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

// living are all processes of the host but this one and those that are dead
// already. Unavailable when they cannot all be looked at; those that nobody but
// their own user may look at are none of ours.
func living() (map[int]stat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, errs.As(errs.Unavailable, "process.living", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, errs.As(errs.Unavailable, "process.living", err)
	}
	all := map[int]stat{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		s, ok, err := readStat(pid)
		switch {
		case errors.Is(err, fs.ErrPermission):
		case err != nil:
			return nil, err
		case ok && !s.dead():
			all[pid] = s
		}
	}
	return all, nil
}

// The variables that say whose process one is: the instance's and its agent's. An agent
// that lost its journal finds the instance's token beside them.
const (
	markName  = "ORRERY_INSTANCE_ID"
	agentName = "ORRERY_AGENT"
	tokenName = "ORRERY_TOKEN"
)

// A process that is about to become another program shows neither environment nor
// arguments for a moment. It is looked at again this often, this long apart.
const (
	execLooks = 100
	execPause = 500 * time.Microsecond
)

// Environ is the environment a process was started with; nil when it has gone or is
// another user's. Errors as of Lives.
func Environ(pid int) ([]string, error) { return environ(pid) }

// environ is the environment a process was started with.
func environ(pid int) ([]string, error) {
	for range execLooks {
		if v, err := list(pid, "environ"); v != nil || err != nil {
			return v, err
		}
		if v, err := list(pid, "cmdline"); err != nil {
			return nil, err
		} else if v != nil {
			return list(pid, "environ") // started meanwhile, or without any
		}
		if _, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe")); err != nil {
			return nil, nil // of the kernel, or gone
		}
		<-time.After(execPause)
	}
	return nil, nil
}

// mark is the instance and the agent a process says to belong to; empty where it
// says nothing.
func mark(pid int) (instance, agent string, err error) {
	env, err := environ(pid)
	for _, v := range env {
		switch name, value, _ := strings.Cut(v, "="); name {
		case markName:
			instance = value
		case agentName:
			agent = value
		}
	}
	return instance, agent, err
}

// list reads a file of NUL-terminated strings that describes a process; nil when it
// has gone or is another user's.
func list(pid int, file string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
	switch {
	case isGone(err), errors.Is(err, fs.ErrPermission), err == nil && len(b) == 0:
		return nil, nil
	case err != nil:
		return nil, errs.As(errs.Unavailable, "process.list", err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
}

// signalNames are the signals by the numbers a shell reports them with.
var signalNames = map[syscall.Signal]string{
	syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT", syscall.SIGILL: "ILL",
	syscall.SIGTRAP: "TRAP", syscall.SIGABRT: "ABRT", syscall.SIGBUS: "BUS", syscall.SIGFPE: "FPE",
	syscall.SIGKILL: "KILL", syscall.SIGUSR1: "USR1", syscall.SIGSEGV: "SEGV", syscall.SIGUSR2: "USR2",
	syscall.SIGPIPE: "PIPE", syscall.SIGALRM: "ALRM", syscall.SIGTERM: "TERM", syscall.SIGXCPU: "XCPU",
	syscall.SIGXFSZ: "XFSZ", syscall.SIGSYS: "SYS",
}
