// Package process runs a command as a plain process, without a helper program except the shell
// that starts it.
//
//	sh (the wrapper, own session and control group)
//	└── bash -c <command>      the server; a simple command is in bash's place
//	    └── …                  whatever it starts
//
// The wrapper writes the server's pid to RunDir/pid and at the end its exit code to RunDir/exit, so
// the code is known even if no agent was running. The input is a FIFO that the processes
// themselves hold open for writing, so it never ends. The output goes directly to an
// append-only file. So the processes do not depend on a living agent.
//
// The agent notices the end through pidfds of wrapper and server, also for adopted runs. They
// use Go's network poller, so a run costs two waiting goroutines.
package process

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/confine"
)

// wrapper is the script of the wrapping shell. Its arguments are the command, RunDir, the shell for
// the command, and the code to execute.
//
// The server runs in the foreground, because a shell gives background jobs /dev/null as input and
// makes them ignore SIGINT and SIGQUIT. So a subshell reads its own pid from the kernel, writes
// it down, and execs the server, after it unset its variables. A FIFO tells the agent that the
// pid is written; it is open for reading and writing, so that the wrapper survives the agent. The
// wrapper drops the shell's own messages about signals, and ignores signals to the whole group
// until the exit code is written. Both numbers overwrite reserved bytes, so that a full disk
// does not lose them. The line below the code says whether the input was a living terminal.
//
// The wrapper may run as the instance's user, who cannot open the files. So the agent passes them as
// the descriptors pidFd, notedFd and exitFd. The command does not inherit them.
//
// In a terminal it sleeps briefly at the end: the kernel passes on the last output with a delay, and
// a multiplexer stops reading when its child has ended.
//
// The code is passed in arguments and not in variables, because an instance may have any variables
// except those that begin with ORRERY_.
const wrapper = `trap : HUP INT QUIT TERM
exec 5>&2 2>/dev/null
( read -r ORRERY_SELF ORRERY_REST </proc/self/stat
printf '%s\n' "$ORRERY_SELF" >&7
unset ORRERY_SELF ORRERY_REST
printf . >&8
exec 7>&- 8>&- 9>&-
eval "exec $4" ) 2>&5 5>&-
code=$? input=
[ -t 0 ] && input=tty
printf '%s\n%s\n' $code "$input" >&9
[ -z "$input" ] || sleep 0.01
`

// The descriptors that the wrapper inherits beside input and output. Shells know only those below 10.
// The wrapper itself uses 5.
const (
	lockFd  = 6
	pidFd   = 7
	notedFd = 8
	exitFd  = 9
)

// argvMark and its position identify a wrapper by its arguments; runDirArg is the position of the
// run directory. See prepareWrapper.
const (
	argvMark    = "orrery"
	argvMarkArg = 3
	runDirArg   = 5
)

// startTimeout limits the wrapper's few steps on an overloaded machine.
const startTimeout = 10 * time.Second

// Config configures a runtime. The zero value is valid.
type Config struct {
	// Tree holds the instances' control groups. If it is nil, processes are found by session
	// and environment.
	Tree *cgroup.Tree
	// Limiter enforces the limits of runs. If it is nil, there are no limits.
	Limiter *cgroup.Limiter
	// View is what runs of other users see of the host.
	View confine.View
	// Owner identifies the agent, as in cgroup.Open. It is in the environment of all processes, to
	// tell them from those of another agent.
	Owner string
	// BootID identifies the kernel's boot. Empty means the kernel's own.
	BootID string
	// Terminal runs the commands in terminals. If it is nil, input is a FIFO and output a file.
	Terminal Terminal
	// Log receives refusals of the host; nil discards them.
	Log *slog.Logger
}

// Runtime runs plain processes.
type Runtime struct {
	tree      *cgroup.Tree
	limiter   *cgroup.Limiter
	view      confine.View
	sh, shell string
	owner     string
	boot      string
	terminal  Terminal
	trash     *trash
	scanner   *scanner
	log       *slog.Logger
	// ungroupedOnce logs a refusal of control groups once, unlimitedOnce one of limits.
	ungroupedOnce, unlimitedOnce sync.Once
}

var _ runtime.Runtime = (*Runtime)(nil)

// New returns the runtime. It returns Unavailable if there is no shell.
func New(cfg Config) (*Runtime, error) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "process.New", err)
	}
	shell, err := exec.LookPath("bash")
	if err != nil {
		shell = sh
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Runtime{
		tree: cfg.Tree, limiter: cfg.Limiter, view: cfg.View, owner: cfg.Owner, sh: sh, shell: shell,
		boot: cmp.Or(cfg.BootID, runtime.BootID()), terminal: cfg.Terminal, trash: newTrash(), scanner: new(scanner), log: cfg.Log,
	}, nil
}

// Close stops the removal of files of ended runs. It does not affect living runs.
func (r *Runtime) Close() { r.trash.close() }

// BootID returns the boot id, as in identities.
func (r *Runtime) BootID() string { return r.boot }

// Start runs a command; see runtime.Runtime.
func (r *Runtime) Start(ctx context.Context, s runtime.Spec) (runtime.Process, error) {
	if fi, err := os.Stat(s.Dir); err != nil || !fi.IsDir() {
		return nil, errs.New(errs.Invalid, "the working directory %s does not exist", s.Dir)
	}
	if err := prepareRunDir(s); err != nil {
		return nil, err
	}
	if s.Confine.PrivateTmp { // left over by an earlier agent
		r.trash.empty(s.TmpDir)
	}
	w, err := r.prepareWrapper(s)
	if err != nil {
		return nil, err
	}
	pidfd, shellPID, err := r.launch(ctx, s, w)
	if err != nil {
		r.removeGroups(ctx, s.InstanceID)
		return nil, err
	}
	id := runtime.Identity{BootID: r.boot}
	id.Shell, err = Identify(shellPID)
	if err == nil {
		id.Server, err = childOf(shellPID, pidPath(s))
	}
	p := r.newRun(s, id)
	p.id.Shell.PID = shellPID // also if identify failed
	p.watch(pidfd)
	if err != nil { // a later agent could not identify it
		return nil, errors.Join(errs.WrapAs(errs.Unavailable, "process.Start", err), p.Kill(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// removeGroups removes the groups of a run that was not started: an empty group would count as
// the group of the whole instance.
func (r *Runtime) removeGroups(ctx context.Context, instance string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if group := r.tree.Group(instance); group.Exists() {
		_ = group.Kill(ctx) // else the next start or a sweep removes it
	}
	r.limiter.Release(ctx, instance)
}

func pidPath(s runtime.Spec) string   { return filepath.Join(s.RunDir, "pid") }
func exitPath(s runtime.Spec) string  { return filepath.Join(s.RunDir, "exit") }
func stdinPath(s runtime.Spec) string { return filepath.Join(s.RunDir, "stdin") }
func notedPath(s runtime.Spec) string { return filepath.Join(s.RunDir, "noted") }

// reserved is the space for a number. Without a newline it is not parsed as one.
const reserved = "                "

// prepareRunDir creates the run directory and its FIFOs, removes files of an earlier run, and
// reserves space for the numbers that the wrapper writes.
func prepareRunDir(s runtime.Spec) error {
	if err := os.MkdirAll(s.RunDir, 0o700); err != nil {
		return errs.WrapAs(errs.Unavailable, "process.Start", err)
	}
	for _, stale := range []string{pidPath(s), exitPath(s), stdinPath(s), notedPath(s)} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.WrapAs(errs.Unavailable, "process.Start", err)
		}
	}
	if err := clearTmp(s.TmpDir); err != nil {
		return errs.WrapAs(errs.Unavailable, "process.Start", err)
	}
	for _, number := range []string{pidPath(s), exitPath(s)} {
		if err := os.WriteFile(number, []byte(reserved), 0o600); err != nil {
			return errs.WrapAs(errs.Unavailable, "process.Start", err)
		}
	}
	for _, fifo := range []string{stdinPath(s), notedPath(s)} {
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			return errs.WrapAs(errs.Unavailable, "process.Start", err)
		}
	}
	return nil
}

// launch starts the wrapper and waits until it has written the server's pid.
func (r *Runtime) launch(ctx context.Context, s runtime.Spec, w wrapperStart) (pidfd, pid int, err error) {
	files, err := openFiles(s)
	if err != nil {
		return 0, 0, errs.WrapAs(errs.Unavailable, "process.Start", err)
	}
	defer files.close()
	off, call, err := os.Pipe()
	if err != nil {
		return 0, 0, errs.WrapAs(errs.Unavailable, "process.Start", err)
	}
	defer off.Close()
	defer call.Close()
	if r.terminal != nil {
		pidfd, pid, err = r.launchInTerminal(ctx, s, w, files)
	} else {
		pidfd, pid, err = r.launchChild(s, w, files)
	}
	if err != nil {
		return 0, 0, errs.WrapAs(errs.Unavailable, "process.Start", err)
	}
	awaitPid(ctx, files.noted, pidfd, off, call)
	return pidfd, pid, nil
}

// launchChild starts the wrapper as a child of the agent.
func (r *Runtime) launchChild(s runtime.Spec, w wrapperStart, files runFiles) (pidfd, pid int, err error) {
	stdin, err := os.OpenFile(stdinPath(s), os.O_RDWR, 0)
	if err != nil {
		return 0, 0, err
	}
	defer stdin.Close()
	log, err := os.OpenFile(s.LogPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return 0, 0, err
	}
	defer log.Close()
	attr := &os.ProcAttr{
		Dir: s.Dir, Env: w.env, Files: []*os.File{stdin, log, log, nil, nil, nil, s.Lock, files.pid, files.noted, files.exit},
		Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	}
	p, err := r.startWrapper(s, w, attr)
	if err != nil {
		return 0, 0, err
	}
	pid = p.Pid
	_ = p.Release() // the pidfd is used for waiting
	return pidfd, pid, nil
}

// startWrapper starts the wrapper in the instance's control group. If the host refuses that, it
// starts it without one; its processes are then found by session and environment.
func (r *Runtime) startWrapper(s runtime.Spec, w wrapperStart, attr *os.ProcAttr) (*os.Process, error) {
	fork := func(attr *os.ProcAttr) (*os.Process, error) {
		// The wrapper begins where this thread is.
		if refused := cgroup.JoinThread(w.joins); refused != nil {
			r.warnUnlimited(refused)
		}
		return os.StartProcess(w.sh, w.argv, attr)
	}
	start := func() (p *os.Process, err error) {
		switch {
		case w.confined != nil:
			return w.confined.Start(attr, fork, attr.Files[:2]...)
		case len(w.joins) == 0:
			return fork(attr)
		}
		err = confine.OnThread(func() error {
			p, err = fork(attr)
			return err
		})
		return p, err
	}
	group := r.tree.Group(s.InstanceID)
	if group == nil {
		return start()
	}
	dir, refused := group.Create()
	if refused == nil {
		defer dir.Close()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(dir.Fd())
		var p *os.Process
		if p, refused = start(); refused == nil {
			return p, nil
		}
	}
	group.Discard() // an empty group would count as the whole instance
	attr.Sys.UseCgroupFD = false
	p, err := start()
	if err == nil {
		r.warnUngrouped(refused)
	}
	return p, err
}

func (r *Runtime) warnUngrouped(refused error) {
	r.ungroupedOnce.Do(func() {
		r.log.Warn("the host refuses control groups: instances run without them, and their processes are found by session and environment", "cause", refused)
	})
}

func (r *Runtime) warnUnlimited(refused error) {
	r.unlimitedOnce.Do(func() {
		r.log.Warn("the host refuses limits: instances run without them", "cause", refused)
	})
}

// awaitPid waits for the byte that says the pid is written, or for the end of the wrapper. off and
// call are the ends of a pipe that ends the wait when ctx ends.
func awaitPid(ctx context.Context, noted *os.File, pidfd int, off, call *os.File) {
	defer context.AfterFunc(ctx, func() { _ = call.Close() })()
	deadline := time.Now().Add(startTimeout)
	fds := []unix.PollFd{
		{Fd: int32(noted.Fd()), Events: unix.POLLIN}, {Fd: int32(pidfd), Events: unix.POLLIN}, {Fd: int32(off.Fd()), Events: unix.POLLIN},
	}
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return
		}
		if _, err := unix.Poll(fds, int(left/time.Millisecond)+1); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Adopt takes over an earlier agent's run; see runtime.Runtime.
func (r *Runtime) Adopt(_ context.Context, s runtime.Spec, id runtime.Identity) (runtime.Process, error) {
	p := r.newRun(s, id)
	if id.BootID != r.boot { // the process ids now belong to other processes
		p.id = runtime.Identity{BootID: id.BootID}
		p.exit = runtime.Exit{Rebooted: true, At: time.Now()}
		close(p.exited)
		return p, nil
	}
	if id.Server.PID == 0 { // the agent died before it journaled the server's pid
		var err error
		if p.id.Server, err = childOf(id.Shell.PID, pidPath(s)); err != nil {
			return nil, err
		}
	}
	pidfd, ok, err := OpenPidfd(id.Shell)
	switch {
	case err != nil:
		return nil, err
	case ok:
		p.watch(pidfd)
	default:
		go p.finish()
	}
	return p, nil
}

func (r *Runtime) newRun(s runtime.Spec, id runtime.Identity) *run {
	return &run{
		instance: s.InstanceID, owner: r.owner, runDir: s.RunDir, tmpDir: s.TmpDir, id: id, group: r.tree.Group(s.InstanceID),
		limiter: r.limiter, terminal: r.terminal, trash: r.trash, scanner: r.scanner, killLock: make(chan struct{}, 1), killed: make(chan struct{}), exited: make(chan struct{}),
	}
}
