// Package proxy is a TCP proxy that simulates network faults between two processes of a
// test.
//
// A proxy copies bytes between its clients and an upstream. Its Fault may change at any
// time, and applies to open and new connections. Data held back by a cut is delivered when
// the cut ends, as TCP does. The proxy never drops, reorders or changes data.
package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Fault describes a network fault. The zero value means no fault.
type Fault struct {
	// Delay is added to each chunk, in both directions.
	Delay time.Duration
	// CutUp holds back the client's data, CutDown the upstream's. Both together are a
	// partition.
	CutUp, CutDown bool
	// HalfOpen closes the open connections, and accepts new ones without ever answering.
	// These are closed when the fault ends.
	HalfOpen bool
	// Refuse closes the open connections, and new ones at once.
	Refuse bool
}

// Dial connects to the upstream.
type Dial func(context.Context) (net.Conn, error)

// Proxy is a running proxy.
type Proxy struct {
	listener net.Listener
	dial     Dial
	ctx      context.Context // canceled by Close; parent of the connections' contexts
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed and replaced when fault changes
	conns   map[net.Conn]bool
}

// New starts a proxy on a listener. Close closes the listener.
func New(l net.Listener, dial Dial) *Proxy {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{listener: l, dial: dial, ctx: ctx, cancel: cancel, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	return p
}

// Address returns the listening address as host:port.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Set changes the fault. The zero Fault restores the connection.
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

// Close stops the proxy, closes its connections and waits.
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

// serve copies one connection's data until either side closes it.
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

// pump copies one direction. When it ends, it closes both sides.
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

// await waits for the given time, and then until the fault allows the transfer. ok is false
// when the proxy was closed.
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

// reset closes a connection so that the peer sees an error and not an end of file.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
