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
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/cgroup"
)

// stat holds fields of /proc/<pid>/stat.
type stat struct {
	state   byte
	parent  int
	session int
	start   uint64
}

// isGone reports whether an error means that the process does not exist, and not that the host is
// out of descriptors or memory, or denies access.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// statSize is more than the maximum size of /proc/<pid>/stat, in bytes.
const statSize = 2048

// readOnce reads a file that fits into buf with one read. It needs half the system calls of
// os.ReadFile, which matters when the files of all processes are read: see BenchmarkScan.
func readOnce(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return buf[:n], nil
}

// readStat reads a process. ok is false if it does not exist. It returns Unavailable if it
// cannot tell.
func readStat(pid int) (s stat, ok bool, err error) {
	var buf [statSize]byte
	b, err := readOnce("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if isGone(err) {
		return stat{}, false, nil
	}
	if err != nil {
		return stat{}, false, errs.WrapAs(errs.Unavailable, "process.readStat", err)
	}
	// The command, in parentheses, may contain anything, so count fields from its end.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return stat{}, false, errs.WrapAs(errs.Unavailable, "process.readStat", fmt.Errorf("process %d: %q", pid, b))
	}
	parent, _ := strconv.Atoi(f[1])
	session, _ := strconv.Atoi(f[3])
	start, err := strconv.ParseUint(f[19], 10, 64)
	s = stat{state: f[0][0], parent: parent, session: session, start: start}
	return s, err == nil, errs.WrapAs(errs.Unavailable, "process.readStat", err)
}

// dead reports whether a process has ended and only its entry remains.
func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

// Lives reports whether a process still runs and is not a zombie. It compares the start time, so
// a reused process id does not count. It returns Unavailable if it cannot tell.
func Lives(id runtime.ProcessID) (bool, error) {
	s, ok, err := readStat(id.PID)
	return ok && s.start == id.Start && !s.dead(), err
}

// Identify returns a process id with its start time; 0 as start if there is no such process. It
// returns the errors of Lives.
func Identify(pid int) (runtime.ProcessID, error) {
	s, _, err := readStat(pid)
	return runtime.ProcessID{PID: pid, Start: s.start}, err
}

// recordedProcess returns the process whose pid the wrapper has written to a file; zero if it has
// not, or the process has ended.
func recordedProcess(path string) (runtime.ProcessID, stat, error) {
	pid, err := readNumber(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, strconv.ErrSyntax), errors.Is(err, strconv.ErrRange):
		return runtime.ProcessID{}, stat{}, nil
	case err != nil:
		return runtime.ProcessID{}, stat{}, errs.WrapAs(errs.Unavailable, "process.recordedProcess", err)
	}
	s, ok, err := readStat(pid)
	if !ok {
		pid = 0
	}
	return runtime.ProcessID{PID: pid, Start: s.start}, s, err
}

// childOf returns the process whose pid the wrapper has written to a file, if it is the wrapper's
// child; a reused pid is not.
func childOf(wrapper int, path string) (runtime.ProcessID, error) {
	id, s, err := recordedProcess(path)
	if wrapper == 0 || s.parent != wrapper {
		return runtime.ProcessID{}, err
	}
	return id, err
}

// ownedByAnother reports whether a process with an instance's mark belongs to another agent. agent
// is the agent in its environment; empty if there is none.
func ownedByAnother(owner, agent string, pid int) bool {
	if agent != "" {
		return agent != owner
	}
	other := cgroup.OwnerOf(pid)
	return other != "" && other != owner
}

// The variables that identify a process's instance and agent. An agent that lost its journal
// also reads the instance's token.
const (
	markName  = "ORRERY_INSTANCE_ID"
	agentName = "ORRERY_AGENT"
	tokenName = "ORRERY_TOKEN"
)

// During an exec, a process shows neither environment nor arguments for a moment. So they are
// read up to execLooks times, execPause apart.
const (
	execLooks = 100
	execPause = 500 * time.Microsecond
)

// Environ returns the environment a process was started with; nil if the process has ended or
// belongs to another user. It returns the errors of Lives.
func Environ(pid int) ([]string, error) {
	for range execLooks {
		if v, err := list(pid, "environ"); v != nil || err != nil {
			return v, err
		}
		if v, err := list(pid, "cmdline"); err != nil {
			return nil, err
		} else if v != nil {
			return list(pid, "environ") // it finished the exec meanwhile, or has no environment
		}
		if _, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe")); err != nil {
			return nil, nil // a kernel thread, or it has ended
		}
		<-time.After(execPause)
	}
	return nil, nil
}

// mark returns the instance and agent in a process's environment; empty if they are not set.
func mark(pid int) (instance, agent string, err error) {
	env, err := Environ(pid)
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

// list reads a file of NUL-terminated strings of a process; nil if the process has ended or
// belongs to another user.
func list(pid int, file string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
	switch {
	case isGone(err), errors.Is(err, fs.ErrPermission), err == nil && len(b) == 0:
		return nil, nil
	case err != nil:
		return nil, errs.WrapAs(errs.Unavailable, "process.list", err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
}

// signalNames maps signals to the names in an exit.
var signalNames = map[syscall.Signal]string{
	syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT", syscall.SIGILL: "ILL",
	syscall.SIGTRAP: "TRAP", syscall.SIGABRT: "ABRT", syscall.SIGBUS: "BUS", syscall.SIGFPE: "FPE",
	syscall.SIGKILL: "KILL", syscall.SIGUSR1: "USR1", syscall.SIGSEGV: "SEGV", syscall.SIGUSR2: "USR2",
	syscall.SIGPIPE: "PIPE", syscall.SIGALRM: "ALRM", syscall.SIGTERM: "TERM", syscall.SIGXCPU: "XCPU",
	syscall.SIGXFSZ: "XFSZ", syscall.SIGSYS: "SYS",
}
