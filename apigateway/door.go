package apigateway

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
)

// door is a listener that is shut without hanging up on who has come through. The kernel
// connects clients before they are accepted, and resets those still waiting when their listener
// is closed: their request may be on its way, and nobody can tell whether it was carried out.
type door struct {
	net.Listener

	mu sync.Mutex
	// waited are those who waited when the door was shut, until they are accepted. Guarded by mu.
	waited []net.Conn
}

// Accept returns who has come through, and after the door was shut who has waited.
func (d *door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err == nil {
		return c, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waited) == 0 {
		return nil, err
	}
	c, d.waited = d.waited[0], d.waited[1:]
	return c, nil
}

// shut lets nobody in any more but those who wait: connections are refused from then on.
func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	var fds []int
	if l, ok := d.Listener.(syscall.Conn); ok {
		if raw, err := l.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { fds = queued(int(fd)) }) // it is closed already if this fails
		}
	}
	_ = d.Close()
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "connection")
		if c, err := net.FileConn(f); err == nil {
			d.waited = append(d.waited, c)
		}
		_ = f.Close() // the connection has its own
	}
}

// queued accepts all who wait at a socket, and waits for nobody.
func queued(listener int) (fds []int) {
	for {
		fd, _, err := syscall.Accept4(listener, syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
		switch {
		case err == nil:
			fds = append(fds, fd)
		case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.ECONNABORTED):
		default: // EAGAIN: nobody waits
			return fds
		}
	}
}
