// Package screen runs commands in sessions of GNU screen, so that operators can attach to a
// server's terminal. Everything else is as in package process: the wrapper, its files, control
// groups and marks.
//
//	SCREEN (one per session, the agent's environment and control group)
//	└── session orrery-ID: the wrapper ── server
//
// Invariants:
//
//   - It does not use or touch the user's screen: neither sockets nor configuration.
//   - A session is named by its process id and its full name, because screen matches prefixes:
//     lobby would match lobby2.
//   - screen appends the terminal's output to the log immediately, and has written everything when
//     it ends. A run counts as ended only after that.
package screen

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
	"sync"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/pane"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

// minMajor and minMinor are the oldest supported version: it accepts -Logfile.
const minMajor, minMinor = 4, 6

// longestName is the length of the longest socket name: a process id and an instance's session.
const longestName = 40

// callTimeout limits one call of screen.
const callTimeout = 10 * time.Second

// settings replace the user's configuration.
const settings = `startup_message off
vbell off
msgwait 0
deflogin off
defutf8 on
defscrollback 2000
logfile flush 0
`

// New returns the runtime. It returns Unavailable, with what to do, if the host lacks something.
func New(ctx context.Context, cfg process.SessionConfig) (*process.Runtime, error) {
	m := &multiplexer{dir: cfg.Dir, sockets: filepath.Join(cfg.Dir, "s"), settings: filepath.Join(cfg.Dir, "settings"), pane: cfg.Pane}
	var err error
	if m.program, err = exec.LookPath("screen"); err != nil {
		return nil, errs.New(errs.Unavailable, "screen is not on the agent's PATH: install it and restart the agent")
	}
	if err := m.checkVersion(ctx); err != nil {
		return nil, err
	}
	if len(cfg.Pane) == 0 {
		return nil, errs.New(errs.Unavailable, "this program cannot run commands inside sessions")
	}
	if err := pane.CheckDir(m.sockets, longestName); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(m.sockets, 0o700); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "screen.New", err)
	}
	if err := os.WriteFile(m.settings, []byte(settings), 0o600); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "screen.New", err)
	}
	cfg.Process.Terminal = m
	return process.New(cfg.Process)
}

// multiplexer manages the agent's sessions.
type multiplexer struct {
	program, dir, sockets, settings string
	pane                            []string
}

var _ process.Terminal = (*multiplexer)(nil)

var version = regexp.MustCompile(`(\d+)\.(\d+)`)

func (m *multiplexer) checkVersion(ctx context.Context) error {
	out, _ := m.command(ctx, "-v").Output() // it prints the version and exits with 1
	found := version.FindStringSubmatch(string(out))
	if found == nil {
		return errs.New(errs.Unavailable, "cannot read the version of screen")
	}
	major, _ := strconv.Atoi(found[1])
	minor, _ := strconv.Atoi(found[2])
	if major < minMajor || major == minMajor && minor < minMinor {
		return errs.New(errs.Unavailable, "screen %s is too old: install version %d.%d or later and restart the agent", found[0], minMajor, minMinor)
	}
	return nil
}

// command returns a call of screen. A session's process inherits this environment and directory, so
// they contain nothing of an instance.
func (m *multiplexer) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, m.program, args...)
	c.Dir = "/"
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=xterm-256color", "SHELL=/bin/sh", "HOME=/", "SCREENDIR=" + m.sockets}
	return c
}

// call calls screen and returns its output as an error.
func (m *multiplexer) call(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c := m.command(ctx, args...)
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	c.WaitDelay = time.Second
	// A session that was just created may still hold the output open. The call has succeeded then.
	if err := c.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("screen: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

func session(instance string) string { return "orrery-" + instance }

// keeper returns the screen process of a session, by its socket; 0 if there is none.
func (m *multiplexer) keeper(instance string) int {
	sockets, err := os.ReadDir(m.sockets)
	if err != nil {
		return 0
	}
	for _, s := range sockets {
		number, name, _ := strings.Cut(s.Name(), ".")
		if pid, err := strconv.Atoi(number); err == nil && name == session(instance) && keeps(pid) {
			return pid
		}
	}
	return 0
}

// keeps reports whether a process is a screen; a killed screen leaves its socket behind.
func keeps(pid int) bool {
	comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	return err == nil && string(comm) == "screen\n"
}

// exactly names the session of a process without prefix matching.
func exactly(pid int, instance string) string { return strconv.Itoa(pid) + "." + session(instance) }

// Open creates a session; see process.Terminal.
func (m *multiplexer) Open(ctx context.Context, s runtime.Spec) (*pane.Pane, error) {
	if pid := m.keeper(s.InstanceID); pid != 0 { // left over from an interrupted start
		_ = m.call(ctx, "-S", exactly(pid, s.InstanceID), "-X", "quit")
	}
	log, err := os.OpenFile(s.LogPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "screen.Open", err)
	}
	_ = log.Close()
	listener, err := pane.Listen(m.dir)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	args := []string{"-c", m.settings, "-L", "-Logfile", unexpanded(s.LogPath), "-U", "-dmS", session(s.InstanceID)}
	if err := m.call(ctx, append(append(args, m.pane...), listener.Path())...); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "screen.Open", err)
	}
	p, err := listener.Accept(ctx)
	if err != nil {
		if pid := m.keeper(s.InstanceID); pid != 0 {
			_ = m.call(context.WithoutCancel(ctx), "-S", exactly(pid, s.InstanceID), "-X", "quit")
		}
		return nil, err
	}
	return p, nil
}

// unexpanded escapes screen's conversions in a path.
func unexpanded(path string) string { return strings.ReplaceAll(path, "%", "%%") }

// register is the screen register for text to paste.
const register = "o"

// closing is how long a session that does not answer may take to end.
const closing = time.Second

// Type types a line; see process.Terminal. It reads the line into a register from a file, so that
// screen does not interpret escapes.
func (m *multiplexer) Type(ctx context.Context, instance, line string) error {
	pid := m.keeper(instance)
	if pid == 0 {
		return errs.New(errs.Unavailable, "the server's screen session is gone")
	}
	path := filepath.Join(m.dir, session(instance)+".line")
	if err := os.WriteFile(path, []byte(line+"\r"), 0o600); err != nil {
		return errs.WrapAs(errs.Unavailable, "screen.Type", err)
	}
	defer os.Remove(path)
	kept, release := whileKept(ctx, pid)
	defer release()
	target := []string{"-S", exactly(pid, instance), "-p", "0"}
	for _, order := range [][]string{{"-X", "readreg", register, path}, {"-X", "paste", register}} {
		if err := m.call(kept, append(target, order...)...); err != nil {
			return errs.WrapAs(errs.Unavailable, "screen.Type", err)
		}
	}
	// A query is answered after the earlier commands are done, unless they ended the session.
	err := m.call(kept, append(target, "-Q", "number")...)
	if err != nil { // an ending session does not answer, and ends a moment later
		select {
		case <-kept.Done():
		case <-time.After(closing):
		}
	}
	if kept.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return errs.WrapAs(errs.Unavailable, "screen.Type", err)
}

// whileKept returns a context that ends with a session's screen process. The caller calls release.
func whileKept(ctx context.Context, pid int) (kept context.Context, release func()) {
	kept, cancel := context.WithCancel(ctx)
	keeper := hold(pid)
	if keeper == nil {
		cancel()
		return kept, cancel
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		process.AwaitEnd(keeper)
		cancel()
	})
	return kept, func() {
		_ = keeper.Close()
		watching.Wait()
	}
}

// hold opens the pidfd of a screen process; nil if it has ended or that is unknown.
func hold(pid int) *os.File {
	id, err := process.Identify(pid)
	if err != nil || !keeps(pid) {
		return nil
	}
	pidfd, ok, err := process.OpenPidfd(id)
	if !ok || err != nil {
		return nil
	}
	return os.NewFile(uintptr(pidfd), "pidfd")
}

// Drain waits for the screen process to end; see process.Terminal. It reads a closed terminal
// until EOF.
func (m *multiplexer) Drain(ctx context.Context, instance, _ string) {
	if keeper := hold(m.keeper(instance)); keeper != nil {
		awaitEnd(ctx, keeper)
	}
}

// Close kills the screen process, which may be stuck; see process.Terminal.
func (m *multiplexer) Close(ctx context.Context, instance string) {
	pid := m.keeper(instance)
	keeper := hold(pid)
	if keeper == nil {
		return
	}
	if process.SendSignal(keeper, syscall.SIGKILL) != nil {
		_ = keeper.Close()
		return // the next start replaces it
	}
	awaitEnd(ctx, keeper)
	_ = os.Remove(filepath.Join(m.sockets, exactly(pid, instance)))
}

// awaitEnd waits until a screen process has ended or ctx ends, and closes its pidfd.
func awaitEnd(ctx context.Context, keeper *os.File) {
	defer keeper.Close()
	defer context.AfterFunc(ctx, func() { _ = keeper.Close() })()
	process.AwaitEnd(keeper)
}

// Attach returns the command for operators; see process.Terminal.
func (m *multiplexer) Attach(instance string) string {
	name := session(instance)
	if pid := m.keeper(instance); pid != 0 {
		name = exactly(pid, instance)
	}
	return fmt.Sprintf("SCREENDIR=%s screen -x %s", process.Quote(m.sockets), name)
}
