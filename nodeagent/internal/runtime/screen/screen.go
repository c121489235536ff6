// Package screen runs commands inside sessions of GNU screen, so that operators can
// attach to a server's terminal. All else is as package process has it: the wrapper,
// its files, control groups and marks.
//
//	SCREEN (one per session, the agent's environment and control group)
//	└── session orrery-ID: the wrapper ── server
//
// Invariants:
//
//   - Nothing of the user's screen is used or touched: neither sockets nor configuration.
//   - A session is named by its process id and its whole name, since screen takes a
//     name for all that begin like it: lobby is never taken for lobby2.
//   - screen appends what the terminal is sent to the log at once, and has written all
//     when it ends; until then a run is not told to have ended.
package screen

import (
	"bytes"
	"context"
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

// The oldest screen that can be told its log on the command line.
const minMajor, minMinor = 4, 6

// longestName is that of a session's socket: a process id and an instance's, in bytes.
const longestName = 40

// callTimeout bounds one call of screen.
const callTimeout = 10 * time.Second

// settings are screen's own, instead of the user's.
const settings = `startup_message off
vbell off
msgwait 0
deflogin off
defutf8 on
defscrollback 2000
logfile flush 0
`

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
	m := &multiplexer{dir: cfg.Dir, sockets: filepath.Join(cfg.Dir, "s"), settings: filepath.Join(cfg.Dir, "settings"), pane: cfg.Pane}
	var err error
	if m.program, err = exec.LookPath("screen"); err != nil {
		return nil, errs.New(errs.Unavailable, "screen is not on the agent's PATH: install it and start the agent again")
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
		return nil, errs.As(errs.Unavailable, "screen.New", err)
	}
	if err := os.WriteFile(m.settings, []byte(settings), 0o600); err != nil {
		return nil, errs.As(errs.Unavailable, "screen.New", err)
	}
	cfg.Process.Terminal = m
	return process.New(cfg.Process)
}

// multiplexer are the agent's sessions.
type multiplexer struct {
	program, dir, sockets, settings string
	pane                            []string
}

var _ process.Terminal = (*multiplexer)(nil)

var version = regexp.MustCompile(`(\d+)\.(\d+)`)

func (m *multiplexer) checkVersion(ctx context.Context) error {
	out, _ := m.command(ctx, "-v").Output() // it exits with 1, having told
	found := version.FindStringSubmatch(string(out))
	if found == nil {
		return errs.New(errs.Unavailable, "screen does not tell its version")
	}
	major, _ := strconv.Atoi(found[1])
	minor, _ := strconv.Atoi(found[2])
	if major < minMajor || major == minMajor && minor < minMinor {
		return errs.New(errs.Unavailable, "screen %s is too old: install version %d.%d or later and start the agent again", found[0], minMajor, minMinor)
	}
	return nil
}

// command is a call of screen. A session's own process inherits this environment and
// directory, so they are nobody's.
func (m *multiplexer) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, m.program, args...)
	c.Dir = "/"
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=xterm-256color", "SHELL=/bin/sh", "HOME=/", "SCREENDIR=" + m.sockets}
	return c
}

// call calls screen; an error tells what it had to complain about.
func (m *multiplexer) call(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c := m.command(ctx, args...)
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	c.WaitDelay = time.Second
	if err := c.Run(); err != nil {
		return fmt.Errorf("screen: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

func session(instance string) string { return "orrery-" + instance }

// keeper finds the process that keeps a session, by its socket; 0 when there is none.
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

// keeps reports whether a process is a screen indeed: one that was killed leaves its socket.
func keeps(pid int) bool {
	comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	return err == nil && string(comm) == "screen\n"
}

// exactly names a session that is kept by a process and no other that begins like it.
func exactly(pid int, instance string) string { return strconv.Itoa(pid) + "." + session(instance) }

// Open makes a session; see process.Terminal.
func (m *multiplexer) Open(ctx context.Context, s runtime.Spec) (process.Pane, error) {
	if pid := m.keeper(s.InstanceID); pid != 0 { // what a start left that nobody finished
		_ = m.call(ctx, "-S", exactly(pid, s.InstanceID), "-X", "quit")
	}
	log, err := os.OpenFile(s.LogPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return nil, errs.As(errs.Unavailable, "screen.Open", err)
	}
	_ = log.Close()
	door, err := pane.Listen(m.dir)
	if err != nil {
		return nil, err
	}
	defer door.Close()
	args := []string{"-c", m.settings, "-L", "-Logfile", unexpanded(s.LogPath), "-U", "-dmS", session(s.InstanceID)}
	if err := m.call(ctx, append(append(args, m.pane...), door.Path())...); err != nil {
		return nil, errs.As(errs.Unavailable, "screen.Open", err)
	}
	p, err := door.Await(ctx)
	if err != nil {
		if pid := m.keeper(s.InstanceID); pid != 0 {
			_ = m.call(context.WithoutCancel(ctx), "-S", exactly(pid, s.InstanceID), "-X", "quit")
		}
		return nil, err
	}
	return p, nil
}

// unexpanded keeps screen from reading window numbers and times into a path.
func unexpanded(path string) string { return strings.ReplaceAll(path, "%", "%%") }

// register is where text waits to be pasted.
const register = "o"

// closing is how long a session that answers nobody may take to end.
const closing = time.Second

// Type types a line; see process.Terminal. It goes through a register that is read
// from a file, so that screen looks for no escapes in it.
func (m *multiplexer) Type(ctx context.Context, instance, line string) error {
	pid := m.keeper(instance)
	if pid == 0 {
		return errs.New(errs.Unavailable, "the server's screen session is gone")
	}
	path := filepath.Join(m.dir, session(instance)+".line")
	if err := os.WriteFile(path, []byte(line+"\r"), 0o600); err != nil {
		return errs.As(errs.Unavailable, "screen.Type", err)
	}
	defer os.Remove(path)
	kept, release := whileKept(ctx, pid)
	defer release()
	target := []string{"-S", exactly(pid, instance), "-p", "0"}
	for _, order := range [][]string{{"-X", "readreg", register, path}, {"-X", "paste", register}} {
		if err := m.call(kept, append(target, order...)...); err != nil {
			return errs.As(errs.Unavailable, "screen.Type", err)
		}
	}
	// A question is answered when what was ordered before is done; unless that ended the session.
	err := m.call(kept, append(target, "-Q", "number")...)
	if err != nil { // a session that is ending answers nobody, and is seen to have ended a moment later
		select {
		case <-kept.Done():
		case <-time.After(closing):
		}
	}
	if kept.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return errs.As(errs.Unavailable, "screen.Type", err)
}

// whileKept is a context that ends with a session's own process. The caller releases it.
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

// hold opens a session's own process; nil when it has gone, or the host does not let it be told.
func hold(pid int) *os.File {
	id, err := process.Identify(pid)
	if err != nil || !keeps(pid) {
		return nil
	}
	pidfd, ok, err := process.Hold(id)
	if !ok || err != nil {
		return nil
	}
	return os.NewFile(uintptr(pidfd), "pidfd")
}

// Drain waits for the session's own process to end; see process.Terminal. It reads a
// terminal that was closed to its end.
func (m *multiplexer) Drain(ctx context.Context, instance, _ string) {
	pid := m.keeper(instance)
	if pid == 0 {
		return
	}
	keeper := hold(pid)
	if keeper == nil {
		return
	}
	defer keeper.Close()
	defer context.AfterFunc(ctx, func() { _ = keeper.Close() })()
	process.AwaitEnd(keeper)
}

// Close kills a session's own process, which may be stuck; see process.Terminal.
func (m *multiplexer) Close(ctx context.Context, instance string) {
	pid := m.keeper(instance)
	if pid == 0 {
		return
	}
	keeper := hold(pid)
	if keeper == nil {
		return
	}
	defer keeper.Close()
	if process.SendSignal(keeper, syscall.SIGKILL) != nil {
		return // the next start meets it
	}
	defer context.AfterFunc(ctx, func() { _ = keeper.Close() })()
	process.AwaitEnd(keeper)
	_ = os.Remove(filepath.Join(m.sockets, exactly(pid, instance)))
}

// Attach is the command for operators; see process.Terminal.
func (m *multiplexer) Attach(instance string) string {
	name := session(instance)
	if pid := m.keeper(instance); pid != 0 {
		name = exactly(pid, instance)
	}
	return fmt.Sprintf("SCREENDIR=%s screen -x %s", quote(m.sockets), name)
}

// quote makes a shell word of a path.
func quote(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }
