package pane

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
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

// order is what a program is told to become.
type order struct {
	Dir  string   `json:"dir"`
	Path string   `json:"path"`
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
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
	pid, err := caller(conn)
	if err != nil {
		_ = conn.Close()
		return nil, errs.As(errs.Unavailable, "pane.Await", err)
	}
	return &Pane{conn: conn, pid: pid}, nil
}

func caller(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) {
		credentials, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil || asked != nil {
		return 0, fmt.Errorf("who calls: %w, %w", err, asked)
	}
	return int(credentials.Pid), nil
}

// Pane is a program that waits to be told what to become.
type Pane struct {
	conn *net.UnixConn
	pid  int
}

// PID is its process id, which it keeps.
func (p *Pane) PID() int { return p.pid }

// Close ends it if it still waits.
func (p *Pane) Close() { _ = p.conn.Close() }

// Become has it turn into the program in path, in a directory, with nothing but that
// environment and the lock, which may be nil. Unavailable when it cannot.
func (p *Pane) Become(dir, path string, argv, env []string, lock *os.File) error {
	if err := p.become(order{dir, path, argv, env}, lock); err != nil {
		return errs.As(errs.Unavailable, "pane.Become", err)
	}
	return nil
}

func (p *Pane) become(o order, lock *os.File) error {
	if err := p.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	var rights []byte
	if lock != nil {
		rights = unix.UnixRights(int(lock.Fd()))
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

func obey(conn *net.UnixConn) error {
	first, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(first, rights)
	if err != nil {
		return err
	}
	if err := keep(rights[:n]); err != nil {
		return err
	}
	var o order
	if err := json.NewDecoder(conn).Decode(&o); err != nil {
		return err
	}
	if err := os.Chdir(o.Dir); err != nil {
		return err
	}
	return syscall.Exec(o.Path, o.Argv, o.Env)
}

// firstKept is the lowest descriptor a lock may have: the ones below are a shell's own.
const firstKept = 10

// keep has a descriptor that was handed over be inherited.
func keep(rights []byte) error {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) == 0 {
		return err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return err
	}
	// What is received is close-on-exec, its duplicate is not.
	_, err = unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD, firstKept)
	return err
}
