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

// Namespace is a network namespace with only a loopback interface. It lets several nodes on
// one machine use the same ports. The nil Namespace is the machine's own network.
type Namespace struct {
	file *os.File
	id   string // in the kernel's form: net:[4026531840]
}

// NewNamespace creates a namespace. It needs administrator rights.
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

// onThread runs f on a new OS thread that ends with f, so that changes to the thread do not
// persist.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends
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

// Do runs f inside the namespace: sockets and processes that f creates belong to it. f must
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

// Listen listens inside the namespace.
func (n *Namespace) Listen(address string) (net.Listener, error) {
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// Dial connects to an address inside the namespace.
func (n *Namespace) Dial(ctx context.Context, address string) (net.Conn, error) {
	var c net.Conn
	err := n.Do(func() (err error) {
		c, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return err
	})
	return c, err
}

// Processes returns the IDs of the processes inside; none for the machine's own network.
func (n *Namespace) Processes() []int {
	if n == nil {
		return nil
	}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	var out []int
	for _, link := range links {
		if id, err := os.Readlink(link); err == nil && id == n.id {
			// This process's first thread may have entered the namespace. It cannot end
			// before the process.
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(link)))); err == nil && pid != os.Getpid() {
				out = append(out, pid)
			}
		}
	}
	return out
}

// Close releases the namespace. It disappears with its last process.
func (n *Namespace) Close() {
	if n != nil && n.file != nil {
		_ = n.file.Close()
	}
}

// NamespacesAllowed reports whether this process may create namespaces.
func NamespacesAllowed() bool {
	n, err := NewNamespace()
	if err == nil {
		n.Close()
	}
	return err == nil
}
