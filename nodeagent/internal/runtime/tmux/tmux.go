// Package tmux runs commands inside sessions of a tmux server of the agent's own, so
// that operators can attach to a server's terminal. All else is as package process
// has it: the wrapper, its files, control groups and marks.
//
//	tmux server (socket DIR/tmux, the agent's environment and control group)
//	└── session orrery-ID: the wrapper ── server
//	    └── pipe-pane: cat, appends what the terminal is sent to the log
//
// Invariants:
//
//   - Nothing of the user's tmux is used or touched: neither socket nor configuration.
//   - A session is named exactly, with tmux's "=": lobby is never taken for lobby2.
//   - The log's writer runs before the server's first byte, and has written all when
//     the run is told to have ended: it holds a FIFO open as long as it lives.
package tmux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/pane"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

// The oldest tmux that keeps what is promised here.
const minMajor = 3

// The size of a terminal nobody has attached to.
const columns, rows = "200", "50"

// callTimeout bounds one call of tmux.
const callTimeout = 10 * time.Second

// A server that is about to end, since its last session just has, refuses a new one.
const (
	openTries = 20
	openPause = 25 * time.Millisecond
)

// Config is what the runtime is made of.
type Config struct {
	// Process is what it shares with plain processes; its Terminal is not used.
	Process process.Config
	// Dir is the runtime's own directory; it is made. It holds sockets, so its path must be short.
	Dir string
	// Pane is the command that calls pane.Main with what is added to it.
	Pane []string
}

// New makes the runtime. Unavailable, with what to do about it, when this host does
// not have what it needs.
func New(ctx context.Context, cfg Config) (*process.Runtime, error) {
	m := &multiplexer{dir: cfg.Dir, socket: filepath.Join(cfg.Dir, "tmux"), pane: cfg.Pane}
	var err error
	if m.program, err = exec.LookPath("tmux"); err != nil {
		return nil, errs.New(errs.Unavailable, "tmux is not on the agent's PATH: install it and start the agent again")
	}
	if err := m.checkVersion(ctx); err != nil {
		return nil, err
	}
	if len(cfg.Pane) == 0 {
		return nil, errs.New(errs.Unavailable, "this program cannot run commands inside sessions")
	}
	if err := pane.CheckDir(cfg.Dir, 0); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, errs.As(errs.Unavailable, "tmux.New", err)
	}
	cfg.Process.Terminal = m
	return process.New(cfg.Process)
}

// multiplexer is the agent's tmux server, which runs while there are sessions.
type multiplexer struct {
	program, dir, socket string
	pane                 []string
}

var _ process.Terminal = (*multiplexer)(nil)

var version = regexp.MustCompile(`(\d+)\.(\d+)`)

func (m *multiplexer) checkVersion(ctx context.Context) error {
	out, err := m.command(ctx, "-V").Output()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return errs.New(errs.Unavailable, "tmux does not tell its version: %v", err)
	}
	found := version.FindStringSubmatch(string(out))
	if found == nil {
		return nil // built from its development branch
	}
	if major, _ := strconv.Atoi(found[1]); major < minMajor {
		return errs.New(errs.Unavailable, "%s is too old: install version %d.0 or later and start the agent again", strings.TrimSpace(string(out)), minMajor)
	}
	return nil
}

// command is a call of tmux. The server that the first session starts inherits this
// environment and directory, so they are nobody's.
func (m *multiplexer) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, m.program, append([]string{"-S", m.socket, "-f", "/dev/null", "-u"}, args...)...)
	c.Dir = "/"
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=xterm-256color", "SHELL=/bin/sh", "HOME=/"}
	return c
}

// call calls tmux and returns what it has to complain about.
func (m *multiplexer) call(ctx context.Context, stdin []byte, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c := m.command(ctx, args...)
	c.Stdin = bytes.NewReader(stdin)
	var said bytes.Buffer
	c.Stderr = &said
	c.WaitDelay = time.Second
	if err := c.Run(); err != nil {
		return fmt.Errorf("tmux: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

func session(instance string) string { return "orrery-" + instance }

// exactly names a session and no other that begins like it.
func exactly(instance string) string { return "=" + session(instance) + ":" }

func livingPath(runDir string) string { return filepath.Join(runDir, "output") }

// Open makes a session; see process.Terminal.
func (m *multiplexer) Open(ctx context.Context, s runtime.Spec) (process.Pane, error) {
	living, err := prepare(s)
	if err != nil {
		return nil, errs.As(errs.Unavailable, "tmux.Open", err)
	}
	defer living.Close()
	door, err := pane.Listen(m.dir)
	if err != nil {
		return nil, err
	}
	defer door.Close()
	if err := m.create(ctx, s, door.Path()); err != nil {
		return nil, errs.As(errs.Unavailable, "tmux.Open", err)
	}
	p, err := door.Await(ctx)
	if err == nil {
		err = awaitByte(ctx, living)
	}
	if err != nil {
		_ = m.call(context.WithoutCancel(ctx), nil, "kill-session", "-t", exactly(s.InstanceID))
		return nil, errs.As(errs.Unavailable, "tmux.Open", err)
	}
	return p, nil
}

// prepare makes the log and the FIFO by which its writer is known to live.
func prepare(s runtime.Spec) (living *os.File, err error) {
	log, err := os.OpenFile(s.LogPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return nil, err
	}
	_ = log.Close()
	path := livingPath(s.RunDir)
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
}

// create makes the session with its log. One of the same name is what a start left
// that nobody finished.
func (m *multiplexer) create(ctx context.Context, s runtime.Spec, door string) (err error) {
	writer := fmt.Sprintf("exec 9<>%s; printf . >&9; exec cat >>%s", quote(livingPath(s.RunDir)), quote(s.LogPath))
	args := []string{"new-session", "-d", "-s", session(s.InstanceID), "-x", columns, "-y", rows}
	args = append(append(args, m.pane...), door)
	args = append(args, ";", "pipe-pane", "-t", exactly(s.InstanceID), unexpanded(writer))
	for range openTries {
		err = m.call(ctx, nil, args...)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case strings.Contains(err.Error(), "duplicate session"):
			_ = m.call(ctx, nil, "kill-session", "-t", exactly(s.InstanceID))
		case !strings.Contains(err.Error(), "server"):
			return err
		}
		<-time.After(openPause)
	}
	return err
}

// quote makes a shell word of a path.
func quote(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }

// unexpanded keeps tmux from reading formats and times into a shell command.
func unexpanded(command string) string {
	return strings.NewReplacer("#", "##", "%", "%%").Replace(command)
}

// awaitByte waits for the log's writer to say that it is there.
func awaitByte(ctx context.Context, living *os.File) error {
	end := time.Now().Add(callTimeout)
	if err := living.SetReadDeadline(end); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = living.SetReadDeadline(time.Unix(1, 0)) })()
	if _, err := living.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("nothing writes the log: %w", err)
	}
	return nil
}

// Type types a line; see process.Terminal. It goes through a buffer, so that tmux
// looks for no names of keys in it.
func (m *multiplexer) Type(ctx context.Context, instance, line string) error {
	buffer := session(instance)
	err := m.call(ctx, []byte(line+"\r"), "load-buffer", "-b", buffer, "-", ";", "paste-buffer", "-d", "-r", "-b", buffer, "-t", exactly(instance))
	return errs.As(errs.Unavailable, "tmux.Type", err)
}

// Drain waits for the log's writer to end; see process.Terminal. tmux lets go of a
// terminal that was closed once all of it was read, and of its log once all was written.
func (m *multiplexer) Drain(ctx context.Context, _, runDir string) {
	living, err := os.OpenFile(livingPath(runDir), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer living.Close()
	defer context.AfterFunc(ctx, func() { _ = living.SetReadDeadline(time.Unix(1, 0)) })()
	for buf := make([]byte, 16); err == nil || errors.Is(err, unix.EINTR); {
		_, err = living.Read(buf) // ends when nobody has it open for writing any more
	}
}

// Close ends a session; see process.Terminal.
func (m *multiplexer) Close(ctx context.Context, instance string) {
	_ = m.call(ctx, nil, "kill-session", "-t", exactly(instance)) // else the next start meets it
}

// Attach is the command for operators; see process.Terminal.
func (m *multiplexer) Attach(instance string) string {
	return fmt.Sprintf("tmux -S %s attach-session -t %s", quote(m.socket), quote("="+session(instance)))
}
