// Package docker runs commands in containers of the engine on the agent's host. The engine
// creates, limits and removes containers. The agent watches the processes inside, as it does
// without containers.
//
//	engine ──▶ container orrery-ID
//	           init (reaps, forwards signals; the container ends with it)
//	           └── pane ── asks the agent what to execute ──▶ bash -c <command>
//	                       input: the run's FIFO; output: the log; both passed as open files
//
// Invariants:
//
//   - Input and output are the agent's own files, as with plain processes, and do not pass through
//     the engine. A stop or restart of the engine loses no line and blocks no server.
//
//   - The agent notices the end by a pidfd of the container's init, and then reads the exit from
//     the engine. It writes the exit to the run directory before it removes the container, so
//     that an agent that is killed meanwhile loses no exit.
//
//   - A container belongs to the agent by its labels, not by its name.
//
//   - The environment is neither in the container's configuration nor in its arguments, so that
//     users who can inspect containers see no token.
//
//   - The engine may be unavailable at any time. Then nothing is started, but running servers
//     are still adopted, typed to and killed.
//
//   - A stopped container is kept only for a known instance. All others of the agent are removed.
//
// Containers survive a restart of the engine only if it is configured with live-restore.
package docker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/moby/moby/client"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/pane"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

// Config configures the runtime.
type Config struct {
	// Process is the configuration shared with plain processes.
	Process process.Config
	// Dir is the runtime's own directory; New creates it. It holds sockets, so its path must be short.
	Dir string
	// Pane is the command that calls pane.Main with the arguments added to it. Its program is
	// mounted into every container.
	Pane []string
	// Log receives warnings of the engine; nil discards them.
	Log *slog.Logger
}

// Runtime runs commands in containers.
type Runtime struct {
	cfg    Config
	engine *client.Client
	// plain finds processes by their environment, also inside containers.
	plain *process.Runtime
	log   *slog.Logger

	// sweepRequested holds a value if containers should be swept. closed is closed when Run
	// has ended.
	sweepRequested, closed chan struct{}
	// removals are the running removals of containers.
	removals sync.WaitGroup

	mu sync.Mutex
	// missing is why the engine cannot be used; nil if it can. rootless is true if root in its
	// containers is the engine's user on the host. isClosed is true once closed is closed.
	missing            error
	rootless, isClosed bool
}

var (
	_ runtime.Runtime  = (*Runtime)(nil)
	_ runtime.Preparer = (*Runtime)(nil)
	_ runtime.Checker  = (*Runtime)(nil)
	_ runtime.Sweeper  = (*Runtime)(nil)
)

// New returns the runtime. It returns Unavailable, with what to do, if this program can use no
// engine. It does not check whether there is an engine; see Check and Run.
func New(cfg Config) (*Runtime, error) {
	if len(cfg.Pane) == 0 {
		return nil, errs.New(errs.Unavailable, "this program cannot run commands inside containers")
	}
	engine, err := connect()
	if err != nil {
		return nil, err
	}
	if err := makeDir(cfg.Dir); err != nil {
		return nil, err
	}
	plain, err := process.New(cfg.Process)
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Runtime{
		cfg: cfg, engine: engine, plain: plain, log: cfg.Log,
		sweepRequested: make(chan struct{}, 1), closed: make(chan struct{}), missing: errNotChecked,
	}, nil
}

func makeDir(dir string) error {
	if err := pane.CheckDir(dir, 0); err != nil {
		return err
	}
	return errs.WrapAs(errs.Unavailable, "docker.New", os.MkdirAll(dir, 0o700))
}

// Start runs a command in a container; see runtime.Runtime. It returns NotFound if the image is
// missing, which Prepare pulls, and runtime.ErrUnreachable if the engine does not answer.
func (r *Runtime) Start(ctx context.Context, s runtime.Spec) (runtime.Process, error) {
	if fi, err := os.Stat(s.Dir); err != nil || !fi.IsDir() {
		return nil, errs.New(errs.Invalid, "the working directory %s does not exist", s.Dir)
	}
	if s.Container == nil || s.Container.Image == "" {
		return nil, errs.New(errs.Invalid, "no image is given: runtime docker needs one")
	}
	files, err := open(s)
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "docker.Start", err)
	}
	defer files.close()
	listener, err := pane.Listen(r.cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	if err := os.Chmod(listener.Path(), 0o666); err != nil { // the container's user connects; others cannot enter the directory
		return nil, errs.WrapAs(errs.Unavailable, "docker.Start", err)
	}
	container, err := r.create(ctx, s, listener.Path())
	if err != nil {
		return nil, r.markUnreachable(ctx, "Start", err)
	}
	p, err := r.run(ctx, s, container, listener, files)
	if err != nil {
		r.remove(context.WithoutCancel(ctx), container.id)
		return nil, r.markUnreachable(ctx, "Start", err)
	}
	return p, nil
}

// Adopt takes over an earlier agent's run; see runtime.Runtime. It needs no engine for a living
// run.
func (r *Runtime) Adopt(_ context.Context, s runtime.Spec, id runtime.Identity) (runtime.Process, error) {
	p := r.newRun(s, "", id)
	if id.BootID != r.plain.BootID() { // the process ids now belong to other processes
		p.id = runtime.Identity{BootID: id.BootID}
		p.rebooted = true
		close(p.ended)
		go p.finish()
		return p, nil
	}
	pidfd, ok, err := process.OpenPidfd(id.Shell)
	switch {
	case err != nil:
		return nil, err
	case ok:
		p.watch(pidfd)
	default:
		close(p.ended)
		go p.finish()
	}
	return p, nil
}

// files are the files that a run inherits.
type files struct{ stdin, log *os.File }

func (f files) close() { _, _ = f.stdin.Close(), f.log.Close() }

// open creates the run directory with its FIFO, removes the exit of an earlier run, and opens
// the run's files.
func open(s runtime.Spec) (f files, err error) {
	if err := os.MkdirAll(s.RunDir, 0o700); err != nil {
		return f, err
	}
	if err := os.RemoveAll(filepath.Join(s.RunDir, exitFile)); err != nil {
		return f, err
	}
	if f.stdin, err = process.MakeInput(s.RunDir); err != nil {
		return f, err
	}
	f.log, err = os.OpenFile(s.LogPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		_ = f.stdin.Close()
	}
	return f, err
}
