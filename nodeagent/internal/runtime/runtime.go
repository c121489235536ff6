// Package runtime is how an instance's command is run: one small interface, and
// what its implementations share.
//
//	Start ──▶ running ──Exited──▶ Exit known, nothing of the instance left
//	Adopt ──▶ running, or already exited with its exit read from what the run left behind
//
// Invariants every runtime keeps:
//
//   - The agent may die at any moment: processes run on, lose no output and never
//     see their input end; a later agent adopts them.
//   - When Exited is closed, everything the instance started is gone.
//   - What an instance is called by the kernel is remembered with its start time,
//     so that a recycled process id is never mistaken for it.
package runtime

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Spec is what is run.
type Spec struct {
	// InstanceID marks every process of the instance, as ORRERY_INSTANCE_ID in its environment.
	InstanceID string
	// Dir is the working directory; it must exist.
	Dir string
	// RunDir holds the run's own files (FIFO, pid, exit); made by Start, outside Dir.
	RunDir string
	// TmpDir is what a run sees as /tmp that has one of its own; what stands beside it under
	// the same name and more is what is left of earlier ones. Empty: no run has one.
	TmpDir string
	// Command is a shell line, run by bash, or sh where there is none.
	Command string
	// Env is the complete environment.
	Env []string
	// LogPath is the append-only file that gets stdout and stderr.
	LogPath string
	// Lock is inherited by every process of the run, so that a lock on it is held as
	// long as one of them lives. Nil: there is none.
	Lock *os.File
	// Limits are what the run is held to, as far as the host can.
	Limits Limits
	// Confine says what the run is kept from. A host that cannot keep it so refuses the start.
	Confine fleet.Confine
	// Container is what runtimes of containers need beside. Nil: it runs in none.
	Container *Container
}

// Container is what is run in, placeholders replaced.
type Container struct {
	fleet.Container
	// Address is what the ports are published on, if it is one of the host's; else, and
	// when it is empty, they are on all of its addresses.
	Address string
	// Ports are published under the same number, unless the network is the host's.
	Ports []Port
}

// Directory is where the instance's directory is in a container that says nothing about it.
const Directory = "/data"

// Port is a port that the server listens on.
type Port struct {
	Number int
	// Protocol is "tcp" or "udp".
	Protocol string
}

// Limits are hard bounds and shares of one run. A part that is 0 bounds nothing.
type Limits struct {
	// MemoryMiB is all memory it may use, swap included.
	MemoryMiB int
	// CPU is a quota in hundredths of a core.
	CPU int
	// CPUWeight is its share of the processors against others, in hundredths of a core.
	CPUWeight int
	// Processes bounds its processes and threads.
	Processes int
	// IOWeight is its share of the disks against others, 1 to 10,000; the usual is 100.
	IOWeight int
}

// Identity is what a process is recognised by after an agent's restart. It is
// what a journal keeps.
type Identity struct {
	// BootID is the kernel's boot; another one means that the host was restarted.
	BootID string `json:"bootId"`
	// Shell is the wrapping shell, Server the command's own process.
	Shell  ProcessID `json:"shell"`
	Server ProcessID `json:"server"`
}

// ProcessID is a process id with the kernel's start time, in clock ticks since boot.
type ProcessID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// Exit is how a run ended.
type Exit struct {
	// Code is the exit code, 128+n after signal n. Meaningless when Known is false.
	Code int
	// Signal names the signal that ended it, without SIG; empty when it exited.
	Signal string
	// Known is false when it went while nobody could see how.
	Known bool
	// OOM is true when the kernel killed it for memory, LimitMiB the limit it was under; 0
	// when the host itself had none left.
	OOM      bool
	LimitMiB int
	// Hangup is true when it ended after its terminal had gone: somebody closed its
	// session, or the multiplexer's server died.
	Hangup bool
	// Rebooted is true when it went because the host was restarted.
	Rebooted bool
	At       time.Time
}

// Found is what was found of an instance by its marks.
type Found struct {
	// Identity is its run's; zero when the wrapping shell is not there any more.
	Identity Identity
	// Env is the environment the run was started with, of a confined run its marks and
	// token only; nil without an Identity.
	Env []string
	// Processes is how many there are.
	Processes int
}

// Process is one run. Its methods may be called from any goroutine.
type Process interface {
	// Identity is what to journal so that the run can be adopted.
	Identity() Identity
	// Running is false when the run has ended, or was found ended: then Exited is
	// closed as soon as what is left of it is gone.
	Running() bool
	// Exited is closed when the run has ended and nothing of it is left.
	Exited() <-chan struct{}
	// Exit is how it ended; only after Exited.
	Exit() Exit
	// WriteLine writes a line and a newline to the input. Conflict when the server does
	// not read its input, and when it has ended: neither is the agent's failure.
	WriteLine(line string) error
	// Signal sends a signal to the server's own process.
	Signal(sig syscall.Signal) error
	// Attach is the shell command that shows an operator the server's terminal; empty
	// when it has none.
	Attach() string
	// Kill ends everything the instance started and returns when it is gone, or when ctx ends.
	Kill(ctx context.Context) error
}

// Runtime runs commands.
type Runtime interface {
	// Start runs a command. Invalid when the directory is missing, Unavailable
	// when the system refuses. A command that does not exist is no error: it exits with 127.
	Start(ctx context.Context, s Spec) (Process, error)
	// Adopt takes over a run an earlier agent started: living, or ended meanwhile
	// with the exit it left behind. Unavailable when the host does not let it be told
	// which: then nothing was touched, and it is to be tried again.
	Adopt(ctx context.Context, s Spec, id Identity) (Process, error)
	// Find looks for living processes of instances whose directories, runs and logs
	// are below root, by instance id, however they came to be: for instances whose
	// identity was lost. Nothing is touched. Unavailable when the host does not let all
	// be looked at.
	Find(root string) (map[string]Found, error)
}

// Preparer is a Runtime that can make ready beforehand what takes time.
type Preparer interface {
	// Prepare makes an image present that is to be run. NotFound, saying why, when it
	// cannot be had; Unavailable when that cannot be told now.
	Prepare(ctx context.Context, image string) error
}

// Lent is a Runtime that depends on what may come and go.
type Lent interface {
	// Missing is why nothing can be started with it now, with what to do about it; nil
	// when something can.
	Missing() error
}

// Sweeper is a Runtime that may keep something of a run that has ended.
type Sweeper interface {
	// Sweep has it remove, at leisure, what it keeps of instances that are not known any more.
	Sweep()
}

// ErrAway is in the chain of an error that is none of what was asked for: what a runtime
// depends on does not answer now.
var ErrAway = errors.New("it does not answer now")

// Away marks an error so.
func Away(cause error) error { return errors.Join(ErrAway, cause) }
