// Package process runs a command as a plain process: no helper program beyond the
// shell that starts it.
//
//	sh (the wrapper, own session and control group)
//	└── bash -c <command>      the server; a simple command is in bash's place
//	    └── …                  whatever it starts
//
// The wrapper notes the server's pid in RunDir/pid and, at the end, its exit code
// in RunDir/exit: so the code is known even if no agent was there to see it. The
// input is a FIFO that the processes themselves hold open for writing, so it never
// ends; output goes straight to an append-only file. An agent that dies takes
// nothing with it.
//
// The end is noticed through pidfds of wrapper and server, also for adopted runs,
// on the runtime's own poller: two parked goroutines are all a run costs.
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
	"github.com/orreryhq/orrery/nodeagent/internal/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/confine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// wrapper is the script of the wrapping shell. Its arguments are the command,
// RunDir, and the shell that runs the command. The server runs in the foreground,
// because a shell hands its background jobs /dev/null as input and makes them ignore
// SIGINT and SIGQUIT. So a copy of the shell notes its own pid, which only the kernel
// tells it, and becomes the server by exec; what it needs for that is gone from the
// environment by then. A FIFO tells the agent that the pid has been noted; it is opened
// both ways, so that an agent which has just died holds nobody up. The wrapper's own
// words about signals are dropped. A signal to the whole group must not end it before
// the server's code is written. Both numbers are written over room that is reserved: a
// disk that has become full takes neither away. Beside the code stands whether the
// input was a living terminal to the last.
//
// In a terminal it stays for a moment: the kernel hands over what was printed last by
// itself, later, and tells nobody when; a multiplexer whose child has ended reads no more.
//
// The first it does is to join the control groups of its limits, which its fourth
// argument says how; the fifth is what to become. Both are code, and no variables: an
// instance may have any of its own but those that begin with ORRERY_. The wrapper of a
// confined run has none of these variables: see wrapped.
const wrapper = `trap : HUP INT QUIT TERM
exec 5>&2 2>/dev/null
eval "$4"
( read -r ORRERY_SELF ORRERY_REST </proc/self/stat
printf '%s\n' "$ORRERY_SELF" 1<>"$2/pid"
unset ORRERY_SELF ORRERY_REST
printf . 1<>"$2/noted"
eval "exec $5" ) 2>&5 5>&-
code=$? input=
[ -t 0 ] && input=tty
printf '%s\n%s\n' $code "$input" 1<>"$2/exit"
[ -z "$input" ] || sleep 0.01
`

// lockFd is what a lock is inherited as: the wrapper uses 5 itself.
const lockFd = 6

// argvMark and runDirArg are where a wrapper's arguments show that it is one, and
// whose: see startWrapper.
const (
	argvMark    = "orrery"
	argvMarkArg = 3
	runDirArg   = 5
)

// startTimeout bounds the wrapper's few steps on a machine that thrashes.
const startTimeout = 10 * time.Second

// Config is what a runtime is made of. The zero value will do.
type Config struct {
	// Tree holds the instances' control groups. Nil: their processes are found by
	// session and environment instead.
	Tree *cgroup.Tree
	// Limiter holds runs to their limits. Nil: none are held.
	Limiter *cgroup.Limiter
	// Confine is the command that calls confine.Main with what is added to it. Empty: a
	// run that is to be confined is refused.
	Confine []string
	// Owner names the agent, as given to cgroup.Open, and stands in the environment of
	// everything it starts: another agent's processes are never taken for this one's.
	Owner string
	// BootID identifies the running kernel. Empty means the kernel's own.
	BootID string
	// Terminal is where commands run. Nil: a FIFO is their input, a file their output.
	Terminal Terminal
	// Log takes what the host refuses. Nil drops it.
	Log *slog.Logger
}

// Runtime runs plain processes.
type Runtime struct {
	tree      *cgroup.Tree
	limiter   *cgroup.Limiter
	confine   []string
	sh, shell string
	owner     string
	boot      string
	terminal  Terminal
	trash     *trash
	census    *census
	log       *slog.Logger
	// ungrouped makes a refusal of control groups be told once, unlimited one of limits.
	ungrouped, unlimited sync.Once
}

var _ runtime.Runtime = (*Runtime)(nil)

// New makes the runtime. Unavailable when there is no shell.
func New(cfg Config) (*Runtime, error) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		return nil, errs.As(errs.Unavailable, "process.New", err)
	}
	shell, err := exec.LookPath("bash")
	if err != nil {
		shell = sh
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Runtime{
		tree: cfg.Tree, limiter: cfg.Limiter, confine: cfg.Confine, owner: cfg.Owner, sh: sh, shell: shell,
		boot: cmp.Or(cfg.BootID, bootID()), terminal: cfg.Terminal, trash: newTrash(), census: new(census), log: cfg.Log,
	}, nil
}

// Close ends what goes on when runs have ended: the removing of what they left. Runs that
// live are not touched.
func (r *Runtime) Close() { r.trash.close() }

// BootID identifies the running kernel, as it stands in identities.
func (r *Runtime) BootID() string { return r.boot }

// Start runs a command; see runtime.Runtime.
func (r *Runtime) Start(ctx context.Context, s runtime.Spec) (runtime.Process, error) {
	if fi, err := os.Stat(s.Dir); err != nil || !fi.IsDir() {
		return nil, errs.New(errs.Invalid, "the working directory %s does not exist", s.Dir)
	}
	if err := prepareRunDir(s); err != nil {
		return nil, err
	}
	if s.Confine.PrivateTmp { // what an agent before this one had no time to remove
		r.trash.empty(s.TmpDir)
	}
	confined, err := r.confined(s)
	if err != nil {
		return nil, err
	}
	w, err := r.wrapped(s, confined)
	if err != nil {
		return nil, err
	}
	defer w.close()
	pidfd, shellPID, err := r.launch(ctx, s, w)
	if err != nil {
		r.unmake(ctx, s.InstanceID)
		return nil, err
	}
	id := runtime.Identity{BootID: r.boot}
	id.Shell, err = identify(shellPID)
	if err == nil {
		id.Server, _, err = noted(pidPath(s))
	}
	p := r.newRun(s, id)
	p.id.Shell.PID = shellPID // also where it could not be looked at
	p.watch(pidfd)
	if err != nil { // a later agent could not tell it from others
		return nil, errors.Join(errs.As(errs.Unavailable, "process.Start", err), p.Kill(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// unmake removes the groups of a run that was not started: an empty one would be taken
// for the whole instance.
func (r *Runtime) unmake(ctx context.Context, instance string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if group := r.tree.Group(instance); group.Exists() {
		_ = group.Kill(ctx) // else the next start meets it, or the sweep of its instance
	}
	r.limiter.Release(ctx, instance)
}

func pidPath(s runtime.Spec) string   { return filepath.Join(s.RunDir, "pid") }
func exitPath(s runtime.Spec) string  { return filepath.Join(s.RunDir, "exit") }
func stdinPath(s runtime.Spec) string { return filepath.Join(s.RunDir, "stdin") }
func notedPath(s runtime.Spec) string { return filepath.Join(s.RunDir, "noted") }

// room is what is reserved for a number; without an end of line it is none.
const room = "                "

// prepareRunDir makes the run's directory with its FIFOs, without an earlier run's
// traces, and with room for what the wrapper will write.
func prepareRunDir(s runtime.Spec) error {
	if err := os.MkdirAll(s.RunDir, 0o700); err != nil {
		return errs.As(errs.Unavailable, "process.Start", err)
	}
	for _, stale := range []string{pidPath(s), exitPath(s), stdinPath(s), notedPath(s)} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.As(errs.Unavailable, "process.Start", err)
		}
	}
	if err := clearTmp(s.TmpDir); err != nil {
		return errs.As(errs.Unavailable, "process.Start", err)
	}
	for _, number := range []string{pidPath(s), exitPath(s)} {
		if err := os.WriteFile(number, []byte(room), 0o600); err != nil {
			return errs.As(errs.Unavailable, "process.Start", err)
		}
	}
	for _, fifo := range []string{stdinPath(s), notedPath(s)} {
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			return errs.As(errs.Unavailable, "process.Start", err)
		}
	}
	return nil
}

// launch starts the wrapper and waits until it has noted the server's pid.
func (r *Runtime) launch(ctx context.Context, s runtime.Spec, w wrapped) (pidfd, pid int, err error) {
	noted, err := os.OpenFile(notedPath(s), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, 0, errs.As(errs.Unavailable, "process.Start", err)
	}
	defer noted.Close()
	off, call, err := os.Pipe()
	if err != nil {
		return 0, 0, errs.As(errs.Unavailable, "process.Start", err)
	}
	defer off.Close()
	defer call.Close()
	if r.terminal != nil {
		pidfd, pid, err = r.launchInside(ctx, s, w)
	} else {
		pidfd, pid, err = r.launchPlainly(s, w)
	}
	if err != nil {
		return 0, 0, errs.As(errs.Unavailable, "process.Start", err)
	}
	awaitNoted(ctx, noted, pidfd, off, call)
	return pidfd, pid, nil
}

// launchPlainly starts the wrapper as a child of the agent.
func (r *Runtime) launchPlainly(s runtime.Spec, w wrapped) (pidfd, pid int, err error) {
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
		Dir: s.Dir, Env: w.env, Files: []*os.File{stdin, log, log},
		Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	}
	inherit(attr, lockFd, s.Lock)
	inherit(attr, confine.EnvironFd, w.environ)
	p, err := r.startWrapper(s, w, attr)
	if err != nil {
		return 0, 0, err
	}
	pid = p.Pid
	_ = p.Release() // the pidfd is what we wait on
	return pidfd, pid, nil
}

// inherit has a process have a file as a descriptor that is higher than those it has
// already. A nil file is none.
func inherit(attr *os.ProcAttr, fd int, f *os.File) {
	if f == nil {
		return
	}
	attr.Files = append(attr.Files, make([]*os.File, fd-len(attr.Files))...)
	attr.Files = append(attr.Files, f)
}

// startWrapper starts the wrapper inside the instance's control group. A host that
// refuses it that has the instance run all the same, found by session and environment.
func (r *Runtime) startWrapper(s runtime.Spec, w wrapped, attr *os.ProcAttr) (*os.Process, error) {
	group := r.tree.Group(s.InstanceID)
	if group == nil {
		return os.StartProcess(w.sh, w.argv, attr)
	}
	dir, refused := group.Create()
	if refused == nil {
		defer dir.Close()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(dir.Fd())
		var p *os.Process
		if p, refused = os.StartProcess(w.sh, w.argv, attr); refused == nil {
			return p, nil
		}
	}
	group.Discard() // an empty group would be taken for the whole instance
	attr.Sys.UseCgroupFD = false
	p, err := os.StartProcess(w.sh, w.argv, attr)
	if err == nil {
		r.tellUngrouped(refused)
	}
	return p, err
}

func (r *Runtime) tellUngrouped(refused error) {
	r.ungrouped.Do(func() {
		r.log.Warn("the host refuses control groups: instances run without and are told by session and environment", "cause", refused)
	})
}

// awaitNoted waits for the byte that says the pid is noted, or for the end of a
// wrapper that died before; its exit tells the rest. off and call are the two ends of
// a pipe of this process alone, by which ctx's end is heard.
func awaitNoted(ctx context.Context, noted *os.File, pidfd int, off, call *os.File) {
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
	if id.BootID != r.boot { // whatever has these numbers now is somebody else
		p.id = runtime.Identity{BootID: id.BootID}
		p.exit = runtime.Exit{Rebooted: true, At: time.Now()}
		close(p.exited)
		return p, nil
	}
	if id.Server.PID == 0 { // the agent died before it could journal the server's pid
		var err error
		if p.id.Server, err = childOf(id.Shell.PID, pidPath(s)); err != nil {
			return nil, err
		}
	}
	pidfd, ok, err := Hold(id.Shell)
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
		limiter: r.limiter, terminal: r.terminal, trash: r.trash, census: r.census, clearing: make(chan struct{}, 1), killed: make(chan struct{}), exited: make(chan struct{}),
	}
}
