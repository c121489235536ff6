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
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/confine"
)

// callTimeout limits how long a program may take to connect on an overloaded machine.
const callTimeout = 20 * time.Second

// maxPath is the maximum length of a socket's path, in bytes.
const maxPath = 107

// nameLength is the length of a listener's file name.
const nameLength = 12

// CheckDir returns an error if the path of dir is too long for sockets with names of that length
// and for listeners.
func CheckDir(dir string, name int) error {
	if most := maxPath - max(name, nameLength) - 1; len(dir) > most {
		return errs.New(errs.Unavailable, "the path %s is too long for sockets: choose a data directory whose path is %d bytes shorter", dir, len(dir)-most)
	}
	return nil
}

// Program is what a waiting program executes.
type Program struct {
	// Dir is the working directory.
	Dir string `json:"dir"`
	// Path is the program file, Argv its arguments. Without a Path, Argv is a command line
	// for the bash or sh that is found.
	Path string   `json:"path,omitempty"`
	Argv []string `json:"argv"`
	// Env is the complete environment.
	Env []string `json:"env"`
	// Stdio are its stdin, stdout and stderr. If they are nil, it keeps those it has.
	Stdio [3]*os.File `json:"-"`
	// Files are inherited as the descriptors from FirstFd on, which must be below minFd.
	Files   []*os.File `json:"-"`
	FirstFd int        `json:"firstFd,omitempty"`
	// Lock is inherited; may be nil.
	Lock *os.File `json:"-"`
	// Confined confines the program; nil for none.
	Confined *confine.Confinement `json:"confined,omitempty"`
}

// message is a Program as it is sent. Its file descriptors are its Stdio, its Files and its Lock, in
// this order, if they are set.
type message struct {
	Program
	Stdio bool `json:"stdio,omitempty"`
	Files int  `json:"files,omitempty"`
}

// Listener is a socket to which one program connects. Close it.
type Listener struct {
	listener *net.UnixListener
	path     string
}

// Listen creates a socket in a private directory.
func Listen(dir string) (*Listener, error) {
	path := filepath.Join(dir, rand.Text()[:nameLength])
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "pane.Listen", err)
	}
	return &Listener{listener, path}, nil
}

// Path returns the socket's path, the program's argument.
func (l *Listener) Path() string { return l.path }

// Close removes the socket.
func (l *Listener) Close() { _ = l.listener.Close() }

// Accept waits for the program to connect.
func (l *Listener) Accept(ctx context.Context) (*Pane, error) {
	_ = l.listener.SetDeadline(time.Now().Add(callTimeout))
	defer context.AfterFunc(ctx, func() { _ = l.listener.SetDeadline(time.Unix(1, 0)) })()
	conn, err := l.listener.AcceptUnix()
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "pane.Accept", err)
	}
	peer, err := Credentials(conn)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &Pane{conn: conn, peer: peer}, nil
}

// Credentials returns the process at the other end of a unix socket, with the user and group it had
// when it connected or listened. It returns Unavailable if the kernel does not tell.
func Credentials(conn syscall.Conn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "pane.Credentials", err)
	}
	var refused error
	err = raw.Control(func(fd uintptr) {
		peer, refused = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return peer, errs.WrapAs(errs.Unavailable, "pane.Credentials", errors.Join(err, refused))
}

// Pane is a program that waits for what to execute.
type Pane struct {
	conn *net.UnixConn
	peer *unix.Ucred
}

// PID returns its process id, which stays the same; 0 if it is invisible here.
func (p *Pane) PID() int { return int(p.peer.Pid) }

// Owner returns the user and group it runs as, as seen by this process.
func (p *Pane) Owner() (uid, gid int) { return int(p.peer.Uid), int(p.peer.Gid) }

// Close ends it if it still waits.
func (p *Pane) Close() { _ = p.conn.Close() }

// Run makes it execute a program. It returns Unavailable if that fails.
func (p *Pane) Run(program Program) error {
	if err := p.become(program); err != nil {
		return errs.WrapAs(errs.Unavailable, "pane.Run", err)
	}
	return nil
}

func (p *Pane) become(program Program) error {
	if err := p.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	o := message{Program: program, Stdio: program.Stdio[0] != nil, Files: len(program.Files)}
	var fds []int
	if o.Stdio {
		for _, f := range program.Stdio {
			fds = append(fds, int(f.Fd()))
		}
	}
	for _, f := range program.Files {
		fds = append(fds, int(f.Fd()))
	}
	if program.Lock != nil {
		fds = append(fds, int(program.Lock.Fd()))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
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
	// A successful exec closes the connection without a message.
	said, err := io.ReadAll(p.conn)
	switch {
	case err != nil:
		return err
	case len(said) > 0:
		return fmt.Errorf("%s", said)
	}
	return nil
}

// Main is the waiting program. Its argument is the socket's path. It returns only on failure, with
// a non-zero exit code.
func Main(args []string, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "pane: the agent runs this program inside a session; its argument is the path of a socket")
		return 2
	}
	if err := connect(args[0]); err != nil {
		fmt.Fprintln(stderr, "pane:", err)
		return 1
	}
	return 0
}

func connect(path string) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	defer conn.Close()
	report, err := highCopy(conn)
	if err != nil {
		return err
	}
	if err = run(conn); err != nil {
		_, _ = unix.Write(report, []byte(err.Error()))
	}
	return err
}

// highCopy returns a descriptor of a connection that no file of a program replaces.
func highCopy(conn *net.UnixConn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var refused error
	err = raw.Control(func(own uintptr) { fd, refused = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, minFd) })
	return fd, errors.Join(err, refused)
}

// maxFds is the maximum number of descriptors that are sent: stdio, and the files of a run and a lock.
const maxFds = 7

func run(conn *net.UnixConn) error {
	first, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*maxFds))
	_, n, _, _, err := conn.ReadMsgUnix(first, rights)
	if err != nil {
		return err
	}
	fds, err := parseFds(rights[:n])
	if err != nil {
		return err
	}
	// Read everything: closing a connection with unread data would reset it, and a decoder may
	// leave the final newline unread.
	sent, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	var o message
	if err := json.Unmarshal(sent, &o); err != nil {
		return err
	}
	if fds, err = installStdio(o, fds); err != nil {
		return err
	}
	if len(fds) < o.Files {
		return errors.New("the files of the run did not arrive")
	}
	for _, fd := range fds[o.Files:] {
		// Received descriptors are close-on-exec; their duplicates are not.
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, minFd); err != nil {
			return err
		}
	}
	if o.Confined != nil {
		runtime.LockOSThread() // the settings apply to this thread, which executes the program
		if err := o.Confined.Apply(); err != nil {
			return fmt.Errorf("the command cannot be confined: %w", err)
		}
	} else if err := os.Chdir(o.Dir); err != nil {
		return err
	}
	if o.Path == "" {
		if err := o.findShell(); err != nil {
			return err
		}
	}
	return o.execute(fds[:o.Files])
}

// execute moves the files to their descriptors and executes the program. It returns only on failure.
func (o *message) execute(files []int) error {
	// The files may be where others of them go.
	moved := make([]int, len(files))
	for n, fd := range files {
		var err error
		if moved[n], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, minFd); err != nil {
			return err
		}
	}
	for n, fd := range moved {
		if err := unix.Dup2(fd, o.FirstFd+n); err != nil {
			return err
		}
	}
	return syscall.Exec(o.Path, o.Argv, o.Env)
}

// minFd is the lowest descriptor for a lock; shells use those below.
const minFd = 10

// parseFds returns the received descriptors.
func parseFds(rights []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	return unix.ParseUnixRights(&messages[0])
}

// installStdio moves the first three descriptors to 0, 1 and 2, if the message says so, and
// returns the others.
func installStdio(o message, fds []int) ([]int, error) {
	if !o.Stdio {
		return fds, nil
	}
	const stdio = len(o.Program.Stdio)
	if len(fds) < stdio {
		return nil, errors.New("input and output did not arrive")
	}
	for n := range stdio {
		if err := unix.Dup2(fds[n], n); err != nil {
			return nil, err
		}
	}
	return fds[stdio:], nil
}

// findShell makes Argv a command line of the first shell that exists.
func (m *message) findShell() error {
	for _, shell := range []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh", "/usr/bin/sh", "/busybox/sh"} {
		if unix.Access(shell, unix.X_OK) == nil {
			m.Path, m.Argv = shell, append([]string{filepath.Base(shell), "-c"}, m.Argv...)
			return nil
		}
	}
	return errors.New("there is neither bash nor sh here to run the command")
}
