// Package runtime defines how an instance's command is run: a small interface, and what its
// implementations share.
//
//	Start ──▶ running ──Exited──▶ Exit known, nothing of the instance left
//	Adopt ──▶ running, or already exited with the exit that the run has recorded
//
// Invariants every runtime keeps:
//
//   - The agent may die at any moment. The processes continue, lose no output, and their
//     input stays open. The next agent adopts them.
//   - When Exited is closed, everything the instance started has ended.
//   - A process id is stored with the process's start time, so that a reused id is never
//     mistaken for the instance.
package runtime

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/isolation"
)

// Spec describes a run.
type Spec struct {
	// InstanceID marks every process of the instance, as ORRERY_INSTANCE_ID in its environment.
	InstanceID string
	// Dir is the working directory; it must exist.
	Dir string
	// RunDir holds the run's own files (FIFO, pid, exit). Start creates it, outside Dir.
	RunDir string
	// TmpDir is the run's private /tmp, if it has one. Files next to it whose names begin with
	// its name are left over from earlier runs. Empty if no run has one.
	TmpDir string
	// Command is a shell line, run by bash, or by sh if there is no bash.
	Command string
	// Env is the complete environment.
	Env []string
	// LogPath is the append-only file for stdout and stderr.
	LogPath string
	// Lock is inherited by every process of the run, which keeps a file lock until the last
	// one has ended. May be nil.
	Lock *os.File
	// Limits are the resource limits, as far as the host supports them.
	Limits Limits
	// Confine restricts the run. Start fails on a host that cannot enforce it.
	Confine isolation.Confine
	// UID is the instance's own user and group, which comes before Confine.User. 0 for none.
	UID int
	// Container has the settings of container runtimes; nil for others.
	Container *Container
}

// Container describes the container of a run, with placeholders replaced.
type Container struct {
	isolation.Container
	// Address is where the ports are published if it is one of the host's addresses. Else
	// they are published on all addresses.
	Address string
	// Ports are published under the same numbers, unless the host's network is used.
	Ports []Port
}

// Directory is the default path of the instance's directory in a container.
const Directory = "/data"

// Port is a port on which the server listens.
type Port struct {
	Number int
	// Protocol is "tcp" or "udp".
	Protocol string
}

// Limits are the limits and shares of a run. A value of 0 sets no limit.
type Limits struct {
	// MemoryMiB limits the memory including swap.
	MemoryMiB int
	// CPU is the quota in hundredths of a core.
	CPU int
	// CPUWeight is the share of CPU time when the CPU is contended, in hundredths of a core.
	CPUWeight int
	// Processes limits the number of processes and threads.
	Processes int
	// IOWeight is the share of the disks, 1 to 10,000; the kernel's default is 100.
	IOWeight int
}

// Identity identifies the processes of a run after a restart of the agent. The journal stores it.
type Identity struct {
	// BootID identifies the kernel's boot; it changes when the host restarts.
	BootID string `json:"bootId"`
	// Shell is the wrapping shell, Server the command's own process.
	Shell  ProcessID `json:"shell"`
	Server ProcessID `json:"server"`
}

// ProcessID is a process id and the process's start time, in clock ticks since boot.
type ProcessID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// Exit says how a run ended.
type Exit struct {
	// Code is the exit code, 128+n after signal n. Undefined if Known is false.
	Code int
	// Signal is the signal that ended it, without SIG; empty if it exited.
	Signal string
	// Known is false if no agent saw how it ended.
	Known bool
	// OOM is true if the kernel killed it for memory. LimitMiB is the limit it reached; 0
	// if the host itself ran out of memory.
	OOM      bool
	LimitMiB int
	// Hangup is true if it ended after its terminal was closed: a user closed the session,
	// or the multiplexer's server died.
	Hangup bool
	// Rebooted is true if it ended because the host restarted.
	Rebooted bool
	At       time.Time
}

// Found describes the processes that Find found of an instance.
type Found struct {
	// Identity is that of the run; zero if its wrapping shell has ended.
	Identity Identity
	// Env is the environment of the run; for a confined run of an earlier agent only the variables that
	// identify it and its token. Nil without an Identity.
	Env []string
	// Processes is the number of processes.
	Processes int
}

// Process is one run. Its methods are safe for concurrent use.
type Process interface {
	// Identity returns what to journal, so that the run can be adopted.
	Identity() Identity
	// Running returns false when the run has ended. Exited is closed once all its
	// processes have ended.
	Running() bool
	// Exited is closed when all processes of the run have ended.
	Exited() <-chan struct{}
	// Exit returns how the run ended. Call it only after Exited.
	Exit() Exit
	// WriteLine writes a line and a newline to the input. It returns Conflict if the server
	// does not read its input or has ended.
	WriteLine(line string) error
	// Signal sends a signal to the server's process.
	Signal(sig syscall.Signal) error
	// Attach returns the shell command that opens the server's terminal; empty if it has none.
	Attach() string
	// Kill kills all processes of the instance. It returns when they have ended, or ctx ends.
	Kill(ctx context.Context) error
}

// Runtime runs commands.
type Runtime interface {
	// Start runs a command. It returns Invalid if the directory is missing, and Unavailable if
	// the system refuses. A missing command is no error: the run exits with code 127.
	Start(ctx context.Context, s Spec) (Process, error)
	// Adopt takes over a run that an earlier agent started, which may have ended meanwhile. It
	// returns Unavailable if it cannot determine the state. Then it changed nothing, and the
	// caller should retry.
	Adopt(ctx context.Context, s Spec, id Identity) (Process, error)
	// Find returns the living processes of instances whose directories are below root, by
	// instance id, for instances whose identity was lost. It changes nothing. It returns
	// Unavailable if it cannot examine all processes.
	Find(root string) (map[string]Found, error)
}

// Preparer is a Runtime that can prepare a slow start in advance.
type Preparer interface {
	// Prepare pulls an image. It returns NotFound with the reason if the image is not available,
	// and Unavailable if that is unknown now.
	Prepare(ctx context.Context, image string) error
}

// Checker is a Runtime that depends on an external program.
type Checker interface {
	// Missing returns why the runtime cannot start anything now, with what to do; nil if it can.
	Missing() error
}

// Sweeper is a Runtime that may keep resources of ended runs.
type Sweeper interface {
	// Sweep removes, in the background, resources of unknown instances.
	Sweep()
}

// ErrUnreachable marks an error as temporary: a program that the runtime depends on does not
// respond.
var ErrUnreachable = errors.New("it does not respond now")

// Unreachable marks an error with ErrUnreachable.
func Unreachable(cause error) error { return errors.Join(ErrUnreachable, cause) }

// BootID identifies the current boot; empty if it cannot be read.
func BootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}
