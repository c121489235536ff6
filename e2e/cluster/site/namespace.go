package site

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Namespace is a network of its own with nothing but a loopback: what makes
// several nodes on one machine have the same ports. The nil Namespace is the
// machine's own network.
type Namespace struct {
	file *os.File
	id   string // as the kernel writes it: net:[4026531840]
}

// NewNamespace makes one. It needs the rights of an administrator.
func NewNamespace() (*Namespace, error) {
	n := &Namespace{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		if err := loopbackUp(); err != nil {
			return err
		}
		var err error
		if n.file, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		n.id, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// onThread runs f on a thread of its own, which ends with it: whatever f did to
// the thread is gone.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		done <- f()
	}()
	return <-done
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bringing the loopback up: %w", err)
	}
	return nil
}

// Do runs f inside: sockets it makes and processes it starts belong there. f must
// stay on its goroutine.
func (n *Namespace) Do(f func() error) error {
	if n == nil {
		return f()
	}
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		return f()
	})
}

// Listen listens inside.
func (n *Namespace) Listen(address string) (net.Listener, error) {
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// Dial connects to an address inside.
func (n *Namespace) Dial(ctx context.Context, address string) (net.Conn, error) {
	var c net.Conn
	err := n.Do(func() (err error) {
		c, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return err
	})
	return c, err
}

// Processes are the ids of the processes inside; none for the machine's own network.
func (n *Namespace) Processes() []int {
	if n == nil {
		return nil
	}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	var out []int
	for _, link := range links {
		if id, err := os.Readlink(link); err == nil && id == n.id {
			// Our own first thread may be the one that entered it: it cannot end before we do.
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(link)))); err == nil && pid != os.Getpid() {
				out = append(out, pid)
			}
		}
	}
	return out
}

// Close lets go of it; it ends with its last process.
func (n *Namespace) Close() {
	if n != nil && n.file != nil {
		_ = n.file.Close()
	}
}

// NamespacesAllowed reports whether this process may make namespaces.
func NamespacesAllowed() bool {
	n, err := NewNamespace()
	if err == nil {
		n.Close()
	}
	return err == nil
}
