package storetest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// gate is a proxy in front of a listener. When a member dies, its gate closes the clients'
// connections at once, like the end of a process; an embedded server would let them hang for
// seconds.
type gate struct {
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	to    string // "" while the member is down
	conns map[net.Conn]struct{}
}

// newGate listens until the test ends. It starts closed.
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

// open forwards connections to an address.
func (g *gate) open(to string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.to = to
}

// close closes all connections and accepts no more.
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

// serve forwards one connection until either side or the gate closes it.
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

// copyUntilEnd closes both sides when one ends.
func copyUntilEnd(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
