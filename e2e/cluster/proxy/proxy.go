// Package proxy is a TCP proxy that can be hurt: the network between two processes
// of a test.
//
// A proxy passes bytes between whoever connects to its listener and an upstream.
// Its Fault may change at any time and holds for open connections and new ones.
// What a cut holds back is delivered when the cut ends, as TCP would deliver it;
// nothing is dropped, reordered or changed.
package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Fault is what is wrong with the line. The zero value is a good one.
type Fault struct {
	// Delay is added to each chunk, in both directions.
	Delay time.Duration
	// CutUp holds back what the connecting side sends, CutDown what the upstream
	// answers. Both is a partition.
	CutUp, CutDown bool
	// HalfOpen ends the open connections, accepts new ones and never answers them;
	// they are ended when the fault is.
	HalfOpen bool
	// Refuse ends the open connections, and new ones at once.
	Refuse bool
}

// Dial connects to the upstream.
type Dial func(context.Context) (net.Conn, error)

// Proxy is a running proxy.
type Proxy struct {
	listener net.Listener
	dial     Dial
	ctx      context.Context // ends with Close; the connections' own
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed and replaced when fault changes
	conns   map[net.Conn]bool
}

// New runs a proxy from a listener, which it closes in the end.
func New(l net.Listener, dial Dial) *Proxy {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{listener: l, dial: dial, ctx: ctx, cancel: cancel, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	return p
}

// Address is where the proxy listens, host:port.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Set changes what is wrong. The zero Fault heals.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	was := p.fault
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
	var ended []net.Conn
	if f.HalfOpen || f.Refuse || was.HalfOpen {
		for c := range p.conns {
			ended = append(ended, c)
		}
	}
	p.mu.Unlock()
	for _, c := range ended {
		reset(c)
	}
}

// Close ends the proxy and its connections, and waits.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if _, ok := p.await(func(Fault) bool { return true }, time.Millisecond); !ok {
				return
			}
			continue
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

// serve passes one connection's bytes until either side ends.
func (p *Proxy) serve(down net.Conn) {
	if !p.track(down) {
		return
	}
	defer p.forget(down)
	f, ok := p.await(func(f Fault) bool { return !f.HalfOpen && !f.CutUp }, 0)
	if !ok || f.Refuse {
		reset(down)
		return
	}
	up, err := p.dial(p.ctx)
	if err != nil {
		reset(down)
		return
	}
	if !p.track(up) {
		return
	}
	defer p.forget(up)
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(up, down, func(f Fault) bool { return f.CutUp }) })
	pumps.Go(func() { p.pump(down, up, func(f Fault) bool { return f.CutDown }) })
	pumps.Wait()
}

// pump copies one direction. Its end ends both.
func (p *Proxy) pump(to, from net.Conn, cut func(Fault) bool) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		f, ok := p.await(func(f Fault) bool { return !cut(f) }, 0)
		if !ok {
			return
		}
		if f.Delay > 0 {
			if _, ok := p.await(func(Fault) bool { return true }, f.Delay); !ok {
				return
			}
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// await waits for a duration and then until the fault allows to go on. ok is
// false when the proxy was closed.
func (p *Proxy) await(allowed func(Fault) bool, first time.Duration) (f Fault, ok bool) {
	if first > 0 {
		timer := time.NewTimer(first)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.ctx.Done():
			return Fault{}, false
		}
	}
	for {
		p.mu.Lock()
		f, changed := p.fault, p.changed
		p.mu.Unlock()
		if allowed(f) {
			return f, p.ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			return f, false
		}
	}
}

func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

// reset ends a connection so that the other side sees an error, not an end.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
