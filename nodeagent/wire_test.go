package nodeagent_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// wire is the network between agents and the store; it can be cut.
type wire struct {
	listener net.Listener
	to       string
	copying  sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

// lay makes a wire to an endpoint, which lasts as long as the test.
func lay(t testing.TB, endpoint string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, to: strings.TrimPrefix(endpoint, "http://"), conns: map[net.Conn]bool{}}
	w.copying.Go(w.serve)
	t.Cleanup(func() {
		_ = l.Close()
		w.sever()
		w.copying.Wait()
	})
	return w
}

func (w *wire) endpoint() string { return "http://" + w.listener.Addr().String() }

func (w *wire) serve() {
	for {
		from, err := w.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", w.to)
		if err != nil || !w.keep(from, to) {
			_ = from.Close()
			if err == nil {
				_ = to.Close()
			}
			continue
		}
		w.copying.Go(func() { w.copy(from, to) })
		w.copying.Go(func() { w.copy(to, from) })
	}
}

func (w *wire) copy(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = to.Close(), from.Close()
}

func (w *wire) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = true
	}
	return !w.cut
}

// sever cuts the wire until mend.
func (w *wire) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for c := range w.conns {
		_ = c.Close()
	}
	clear(w.conns)
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}
