package pane

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/confine"
)

// callTimeout bounds how long a program may take to call on a machine that thrashes.
const callTimeout = 20 * time.Second

// maxPath is the longest path a socket may have, in bytes.
const maxPath = 107

// nameLength is that of a door's name.
const nameLength = 12

// CheckDir says why sockets with names of so many bytes, and doors, cannot be in a
// directory; nil when they can.
func CheckDir(dir string, name int) error {
	if most := maxPath - max(name, nameLength) - 1; len(dir) > most {
		return errs.New(errs.Unavailable, "the path %s is too long for sockets: choose a data directory whose path is %d bytes shorter", dir, len(dir)-most)
	}
	return nil
}

// Program is what a program that waits is told to become.
type Program struct {
	// Dir is where it runs.
	Dir string `json:"dir"`
	// Path is its file, Argv are its arguments. Without a Path it is the shell of the
	// place it runs in, bash or sh, and Argv the line for it.
	Path string   `json:"path,omitempty"`
	Argv []string `json:"argv"`
	// Env is the complete environment.
	Env []string `json:"env"`
	// Stdio are its input, output and errors. All nil: those it waits with.
	Stdio [3]*os.File `json:"-"`
	// Lock is inherited. Nil: there is none.
	Lock *os.File `json:"-"`
	// Environ is inherited as confine.EnvironFd. Nil: there is none.
	Environ *os.File `json:"-"`
}

// order is a program as it is sent. The files that go with it are its stdio, its Environ
// and its lock, in this order, as far as it has them.
type order struct {
	Program
	Stdio   bool `json:"stdio,omitempty"`
	Environ bool `json:"environ,omitempty"`
}

// Door is where one program calls. Close it.
type Door struct {
	listener *net.UnixListener
	path     string
}

// Listen makes a door in a directory that nobody else may enter.
func Listen(dir string) (*Door, error) {
	path := filepath.Join(dir, rand.Text()[:nameLength])
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, errs.As(errs.Unavailable, "pane.Listen", err)
	}
	return &Door{listener, path}, nil
}

// Path is what the program is given as its argument.
func (d *Door) Path() string { return d.path }

// Close removes the door.
func (d *Door) Close() { _ = d.listener.Close() }

// Await waits for the program to call.
func (d *Door) Await(ctx context.Context) (*Pane, error) {
	_ = d.listener.SetDeadline(time.Now().Add(callTimeout))
	defer context.AfterFunc(ctx, func() { _ = d.listener.SetDeadline(time.Unix(1, 0)) })()
	conn, err := d.listener.AcceptUnix()
	if err != nil {
		return nil, errs.As(errs.Unavailable, "pane.Await", err)
	}
	who, err := caller(conn)
	if err != nil {
		_ = conn.Close()
		return nil, errs.As(errs.Unavailable, "pane.Await", err)
	}
	return &Pane{conn: conn, who: who}, nil
}

func caller(conn *net.UnixConn) (credentials *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var asked error
	err = raw.Control(func(fd uintptr) {
		credentials, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, asked); err != nil {
		return nil, fmt.Errorf("who calls: %w", err)
	}
	return credentials, nil
}

// Pane is a program that waits to be told what to become.
type Pane struct {
	conn *net.UnixConn
	who  *unix.Ucred
}

// PID is its process id, which it keeps; 0 when this process cannot see it.
func (p *Pane) PID() int { return int(p.who.Pid) }

// Owner is the user and the group it runs as, as this process sees them.
func (p *Pane) Owner() (uid, gid int) { return int(p.who.Uid), int(p.who.Gid) }

// Close ends it if it still waits.
func (p *Pane) Close() { _ = p.conn.Close() }

// Run has it turn into a program. Unavailable when it cannot.
func (p *Pane) Run(program Program) error {
	if err := p.become(program); err != nil {
		return errs.As(errs.Unavailable, "pane.Run", err)
	}
	return nil
}

func (p *Pane) become(program Program) error {
	if err := p.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	o := order{Program: program, Stdio: program.Stdio[0] != nil, Environ: program.Environ != nil}
	var handed []int
	if o.Stdio {
		for _, f := range program.Stdio {
			handed = append(handed, int(f.Fd()))
		}
	}
	if program.Environ != nil {
		handed = append(handed, int(program.Environ.Fd()))
	}
	if program.Lock != nil {
		handed = append(handed, int(program.Lock.Fd()))
	}
	var rights []byte
	if len(handed) > 0 {
		rights = unix.UnixRights(handed...)
	}
	if _, _, err := p.conn.WriteMsgUnix([]byte{0}, rights, nil); err != nil {
		return err
	}
	if err := json.NewEncoder(p.conn).Encode(o); err != nil {
		return err
	}
	if err := p.conn.CloseWrite(); err != nil {
		return err
	}
	// The connection ends without a word when it has become the other program.
	said, err := io.ReadAll(p.conn)
	switch {
	case err != nil:
		return err
	case len(said) > 0:
		return fmt.Errorf("%s", said)
	}
	return nil
}

// Main is the program. Its argument is the door's path. It returns only when it could
// not become what it was told; the exit code is not 0 then.
func Main(args []string, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "pane: the agent runs this inside a session of its own; it takes the path of a socket")
		return 2
	}
	if err := call(args[0]); err != nil {
		fmt.Fprintln(stderr, "pane:", err)
		return 1
	}
	return 0
}

func call(path string) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err = obey(conn); err != nil {
		_, _ = io.WriteString(conn, err.Error())
	}
	return err
}

// mostHanded is how many files are handed over at most: stdio, an environment and a lock.
const mostHanded = 5

func obey(conn *net.UnixConn) error {
	first, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*mostHanded))
	_, n, _, _, err := conn.ReadMsgUnix(first, rights)
	if err != nil {
		return err
	}
	handed, err := received(rights[:n])
	if err != nil {
		return err
	}
	// A decoder may leave the line feed unread, and a connection that closes with something
	// unread is reset.
	sent, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal(sent, &o); err != nil {
		return err
	}
	if handed, err = takeStdio(o, handed); err != nil {
		return err
	}
	if handed, err = takeEnviron(o, handed); err != nil {
		return err
	}
	for _, fd := range handed {
		// What is received is close-on-exec, its duplicate is not.
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, firstKept); err != nil {
			return err
		}
	}
	if err := os.Chdir(o.Dir); err != nil {
		return err
	}
	if o.Path == "" {
		if err := o.findShell(); err != nil {
			return err
		}
	}
	return syscall.Exec(o.Path, o.Argv, o.Env)
}

// firstKept is the lowest descriptor a lock may have: the ones below are a shell's own.
const firstKept = 10

// received are the descriptors that were handed over.
func received(rights []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	return unix.ParseUnixRights(&messages[0])
}

// takeStdio makes the first three of what was handed over the program's own, if they
// are, and returns the others.
func takeStdio(o order, handed []int) ([]int, error) {
	if !o.Stdio {
		return handed, nil
	}
	const stdio = len(o.Program.Stdio)
	if len(handed) < stdio {
		return nil, errors.New("input and output did not arrive")
	}
	for n := range stdio {
		if err := unix.Dup2(handed[n], n); err != nil {
			return nil, err
		}
	}
	return handed[stdio:], nil
}

// takeEnviron gives the environment that was handed over its descriptor, if there is one,
// and returns the others.
func takeEnviron(o order, handed []int) ([]int, error) {
	if !o.Environ {
		return handed, nil
	}
	if len(handed) == 0 {
		return nil, errors.New("the environment did not arrive")
	}
	return handed[1:], unix.Dup2(handed[0], confine.EnvironFd)
}

// findShell makes the line one for the shell that is there.
func (o *order) findShell() error {
	for _, shell := range []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh", "/usr/bin/sh", "/busybox/sh"} {
		if unix.Access(shell, unix.X_OK) == nil {
			o.Path, o.Argv = shell, append([]string{filepath.Base(shell), "-c"}, o.Argv...)
			return nil
		}
	}
	return errors.New("there is neither bash nor sh here to run the command")
}
