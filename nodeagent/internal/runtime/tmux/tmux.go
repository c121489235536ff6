// Package tmux runs commands in sessions of the agent's own tmux server, so that operators can
// attach to a server's terminal. Everything else is as in package process: the wrapper, its
// files, control groups and marks.
//
//	tmux server (socket DIR/tmux, the agent's environment and control group)
//	└── session orrery-ID: the wrapper ── server
//	    └── pipe-pane: cat, appends the terminal's output to the log
//
// Invariants:
//
//   - It does not use or touch the user's tmux: neither sockets nor configuration.
//   - A session is named exactly, with tmux's "=": lobby never matches lobby2.
//   - The log's writer runs before the server's first byte, and has written everything before the
//     run counts as ended: it holds a FIFO open as long as it lives.
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

// minMajor is the oldest supported major version.
const minMajor = 3

// columns and rows are the size of a terminal before a user attaches.
const columns, rows = "200", "50"

// callTimeout limits one call of tmux.
const callTimeout = 10 * time.Second

// A server that ends because its last session has ended rejects new sessions, so Open retries.
const (
	openTries = 20
	openPause = 25 * time.Millisecond
)

// New returns the runtime. It returns Unavailable, with what to do, if the host lacks something.
func New(ctx context.Context, cfg process.SessionConfig) (*process.Runtime, error) {
	m := &multiplexer{dir: cfg.Dir, socket: filepath.Join(cfg.Dir, "tmux"), pane: cfg.Pane}
	var err error
	if m.program, err = exec.LookPath("tmux"); err != nil {
		return nil, errs.New(errs.Unavailable, "tmux is not on the agent's PATH: install it and restart the agent")
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
		return nil, errs.WrapAs(errs.Unavailable, "tmux.New", err)
	}
	cfg.Process.Terminal = m
	return process.New(cfg.Process)
}

// multiplexer is the agent's tmux server, which runs as long as there are sessions.
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
		return errs.New(errs.Unavailable, "cannot read the version of tmux: %v", err)
	}
	found := version.FindStringSubmatch(string(out))
	if found == nil {
		return nil // a development version
	}
	if major, _ := strconv.Atoi(found[1]); major < minMajor {
		return errs.New(errs.Unavailable, "%s is too old: install version %d.0 or later and restart the agent", strings.TrimSpace(string(out)), minMajor)
	}
	return nil
}

// command returns a call of tmux. The server, which the first session starts, inherits this
// environment and directory, so they contain nothing of an instance.
func (m *multiplexer) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, m.program, append([]string{"-S", m.socket, "-f", "/dev/null", "-u"}, args...)...)
	c.Dir = "/"
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=xterm-256color", "SHELL=/bin/sh", "HOME=/"}
	return c
}

// call calls tmux and returns its error output.
func (m *multiplexer) call(ctx context.Context, stdin []byte, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c := m.command(ctx, args...)
	c.Stdin = bytes.NewReader(stdin)
	var said bytes.Buffer
	c.Stderr = &said
	c.WaitDelay = time.Second
	// A session that was just created may still hold the output open. The call has succeeded then.
	if err := c.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("tmux: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

func session(instance string) string { return "orrery-" + instance }

// exactly names a session without prefix matching.
func exactly(instance string) string { return "=" + session(instance) + ":" }

func livingPath(runDir string) string { return filepath.Join(runDir, "output") }

// Open creates a session; see process.Terminal.
func (m *multiplexer) Open(ctx context.Context, s runtime.Spec) (*pane.Pane, error) {
	living, err := prepare(s)
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "tmux.Open", err)
	}
	defer living.Close()
	listener, err := pane.Listen(m.dir)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	if err := m.create(ctx, s, listener.Path()); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "tmux.Open", err)
	}
	p, err := listener.Accept(ctx)
	if err == nil {
		err = awaitByte(ctx, living)
	}
	if err != nil {
		_ = m.call(context.WithoutCancel(ctx), nil, "kill-session", "-t", exactly(s.InstanceID))
		return nil, errs.WrapAs(errs.Unavailable, "tmux.Open", err)
	}
	return p, nil
}

// prepare creates the log, and the FIFO that its writer holds open.
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

// create creates the session and its log writer. It replaces a session of the same name, which an
// interrupted start left over.
func (m *multiplexer) create(ctx context.Context, s runtime.Spec, socket string) (err error) {
	writer := fmt.Sprintf("exec 9<>%s; printf . >&9; exec cat >>%s", process.Quote(livingPath(s.RunDir)), process.Quote(s.LogPath))
	args := []string{"new-session", "-d", "-s", session(s.InstanceID), "-x", columns, "-y", rows}
	args = append(append(args, m.pane...), socket)
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

// unexpanded escapes tmux's formats and time conversions in a shell command.
func unexpanded(command string) string {
	return strings.NewReplacer("#", "##", "%", "%%").Replace(command)
}

// awaitByte waits until the log's writer has started.
func awaitByte(ctx context.Context, living *os.File) error {
	end := time.Now().Add(callTimeout)
	if err := living.SetReadDeadline(end); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = living.SetReadDeadline(time.Unix(1, 0)) })()
	if _, err := living.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("the log writer did not start: %w", err)
	}
	return nil
}

// Type types a line; see process.Terminal. It uses a paste buffer, so that tmux does not interpret
// key names.
func (m *multiplexer) Type(ctx context.Context, instance, line string) error {
	buffer := session(instance)
	err := m.call(ctx, []byte(line+"\r"), "load-buffer", "-b", buffer, "-", ";", "paste-buffer", "-d", "-r", "-b", buffer, "-t", exactly(instance))
	return errs.WrapAs(errs.Unavailable, "tmux.Type", err)
}

// Drain waits for the log's writer to end; see process.Terminal. tmux closes a terminal when it has
// read everything, and the log when it has written everything.
func (m *multiplexer) Drain(ctx context.Context, _, runDir string) {
	living, err := os.OpenFile(livingPath(runDir), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer living.Close()
	defer context.AfterFunc(ctx, func() { _ = living.SetReadDeadline(time.Unix(1, 0)) })()
	for buf := make([]byte, 16); err == nil || errors.Is(err, unix.EINTR); {
		_, err = living.Read(buf) // EOF when no process has it open for writing
	}
}

// Close ends a session; see process.Terminal.
func (m *multiplexer) Close(ctx context.Context, instance string) {
	_ = m.call(ctx, nil, "kill-session", "-t", exactly(instance)) // else the next start replaces it
}

// Attach returns the command for operators; see process.Terminal.
func (m *multiplexer) Attach(instance string) string {
	return fmt.Sprintf("tmux -S %s attach-session -t %s", process.Quote(m.socket), process.Quote("="+session(instance)))
}
