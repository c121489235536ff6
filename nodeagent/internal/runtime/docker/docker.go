// Package docker runs commands in containers of the engine on the agent's host. The
// engine makes, bounds and forgets containers; what runs inside is the agent's to
// watch, as without them.
//
//	engine ──▶ container orrery-ID
//	           init (reaps, forwards signals; its end is the container's)
//	           └── pane ── asks the agent what to become ──▶ bash -c <command>
//	                       input: the run's FIFO; output: the log; both handed over as open files
//
// Invariants:
//
//   - Input and output are the agent's own files, as with plain processes. Nothing of
//     them goes through the engine: neither its end nor its restart loses a line, or
//     holds a server up.
//
//   - The end is told by a pidfd of the container's init, and what the engine knows of
//     it is read then. It is written beside the run before the container is removed, so
//     that an agent which is killed between loses no exit.
//
//   - A container is one of ours by its labels, never by what its name begins with.
//
//   - The environment is in neither the container's configuration nor its arguments:
//     who may look at containers sees no token.
//
//   - The engine may be away at any moment, also at the start: then nothing is started,
//     and what lives is adopted, typed to and killed all the same.
//
//   - A container that does not run is of use only to an instance that is known here.
//     All others of ours are removed.
//
// What it does not do: keep containers over an end of the engine that takes them along.
// They live through its restart where it is set to live-restore.
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

// Config is what the runtime is made of.
type Config struct {
	// Process is what it shares with plain processes.
	Process process.Config
	// Dir is the runtime's own directory; it is made. It holds sockets, so its path must be short.
	Dir string
	// Pane is the command that calls pane.Main with what is added to it. Its program is
	// shown to every container.
	Pane []string
	// Log takes what the engine refuses. Nil drops it.
	Log *slog.Logger
}

// Runtime runs commands in containers.
type Runtime struct {
	cfg    Config
	engine *client.Client
	// plain finds processes by their marks, in containers too.
	plain *process.Runtime
	log   *slog.Logger

	// rubbish is signalled when a container may have become useless, closed is closed when
	// nobody waits for removals any more.
	rubbish, closed chan struct{}
	// clearing are the removals under way.
	clearing sync.WaitGroup

	mu sync.Mutex
	// missing is why the engine cannot be used, nil when it can; rootless is true when what
	// is root in its containers is the engine's user on the host. over is true once closed is.
	missing        error
	rootless, over bool
}

var (
	_ runtime.Runtime  = (*Runtime)(nil)
	_ runtime.Preparer = (*Runtime)(nil)
	_ runtime.Lent     = (*Runtime)(nil)
	_ runtime.Sweeper  = (*Runtime)(nil)
)

// New makes the runtime. Unavailable, with what to do about it, when this program can
// use no engine. Whether there is one is another matter: see Look and Run.
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
		rubbish: make(chan struct{}, 1), closed: make(chan struct{}), missing: errNotLooked,
	}, nil
}

func makeDir(dir string) error {
	if err := pane.CheckDir(dir, 0); err != nil {
		return err
	}
	return errs.As(errs.Unavailable, "docker.New", os.MkdirAll(dir, 0o700))
}

// Start runs a command in a container; see runtime.Runtime. NotFound when its image is
// not there, which Prepare would get; runtime.ErrAway when the engine does not answer.
func (r *Runtime) Start(ctx context.Context, s runtime.Spec) (runtime.Process, error) {
	if fi, err := os.Stat(s.Dir); err != nil || !fi.IsDir() {
		return nil, errs.New(errs.Invalid, "the working directory %s does not exist", s.Dir)
	}
	if s.Container == nil || s.Container.Image == "" {
		return nil, errs.New(errs.Invalid, "no image is given: runtime docker needs one")
	}
	files, err := open(s)
	if err != nil {
		return nil, errs.As(errs.Unavailable, "docker.Start", err)
	}
	defer files.close()
	door, err := pane.Listen(r.cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer door.Close()
	if err := os.Chmod(door.Path(), 0o666); err != nil { // whoever runs in the container calls; nobody else gets here
		return nil, errs.As(errs.Unavailable, "docker.Start", err)
	}
	made, err := r.create(ctx, s, door.Path())
	if err != nil {
		return nil, r.orAway(ctx, "Start", err)
	}
	p, err := r.bring(ctx, s, made, door, files)
	if err != nil {
		r.remove(context.WithoutCancel(ctx), made.id)
		return nil, r.orAway(ctx, "Start", err)
	}
	return p, nil
}

// Adopt takes over an earlier agent's run; see runtime.Runtime. It needs no engine for
// one that lives.
func (r *Runtime) Adopt(_ context.Context, s runtime.Spec, id runtime.Identity) (runtime.Process, error) {
	p := r.newRun(s, "", id)
	if id.BootID != r.plain.BootID() { // whatever has these numbers now is somebody else
		p.id = runtime.Identity{BootID: id.BootID}
		p.rebooted = true
		close(p.ended)
		go p.finish()
		return p, nil
	}
	pidfd, ok, err := process.Hold(id.Shell)
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

// files are what a run is given open.
type files struct{ stdin, log *os.File }

func (f files) close() { _, _ = f.stdin.Close(), f.log.Close() }

// open makes the run's directory with its FIFO, without an earlier run's traces, and
// opens what the command gets.
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
