package apigateway

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
)

// drainListener is a listener that shuts down without resetting connections. The kernel completes
// connections before they are accepted and resets the waiting ones when their listener closes.
// Their requests may be on the way, and the clients could not tell whether they were carried out.
type drainListener struct {
	net.Listener

	mu sync.Mutex
	// waited has the connections that were in the accept queue at shutdown. Guarded by mu.
	waited []net.Conn
}

// Accept returns the next connection; after shut, the ones from the accept queue.
func (l *drainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		return c, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waited) == 0 {
		return nil, err
	}
	c, l.waited = l.waited[0], l.waited[1:]
	return c, nil
}

// shut refuses new connections and drains the accept queue.
func (l *drainListener) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var fds []int
	if conn, ok := l.Listener.(syscall.Conn); ok {
		if raw, err := conn.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { fds = queued(int(fd)) }) // fails if the listener is already closed
		}
	}
	_ = l.Close()
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "connection")
		if c, err := net.FileConn(f); err == nil {
			l.waited = append(l.waited, c)
		}
		_ = f.Close() // the connection has a duplicate
	}
}

// queued accepts all connections in a socket's accept queue without blocking.
func queued(listener int) (fds []int) {
	for {
		fd, _, err := syscall.Accept4(listener, syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
		switch {
		case err == nil:
			fds = append(fds, fd)
		case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.ECONNABORTED):
		default: // EAGAIN: the queue is empty
			return fds
		}
	}
}
