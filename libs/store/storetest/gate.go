package storetest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// gate stands before a listener. When a member dies, the gate before it ends the
// clients' connections at once, as the end of a process would: an embedded server
// alone lets them hang for seconds.
type gate struct {
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	to    string // "" while the member is down
	conns map[net.Conn]struct{}
}

// newGate listens until the test ends; the member is down.
func newGate(t testing.TB) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: l, conns: map[net.Conn]struct{}{}}
	g.running.Go(g.accept)
	t.Cleanup(func() {
		_ = l.Close()
		g.close()
		g.running.Wait()
	})
	return g
}

func (g *gate) url() string { return "http://" + g.listener.Addr().String() }

// open lets connections through to an address.
func (g *gate) open(to string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.to = to
}

// close ends all connections and takes no more.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.to = ""
	for c := range g.conns {
		_ = c.Close()
	}
	clear(g.conns)
}

func (g *gate) accept() {
	for {
		in, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.running.Go(func() { g.serve(in) })
	}
}

// serve carries one connection until either side or the gate ends it.
func (g *gate) serve(in net.Conn) {
	defer in.Close()
	g.mu.Lock()
	to := g.to
	g.mu.Unlock()
	if to == "" {
		return
	}
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	g.mu.Lock()
	if g.to != to {
		g.mu.Unlock()
		return
	}
	g.conns[in], g.conns[out] = struct{}{}, struct{}{}
	g.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() { copyUntilEnd(in, out) })
	copyUntilEnd(out, in)
	back.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, in)
	delete(g.conns, out)
}

// copyUntilEnd ends both sides when one does.
func copyUntilEnd(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
