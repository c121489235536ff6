package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster/proxy"
)

// patience limits the wait for what must happen; impatience is how long to watch for what
// must not.
const (
	patience   = 10 * time.Second
	impatience = 50 * time.Millisecond
)

// echo returns a proxy to a server that echoes all data.
func echo(t *testing.T) *proxy.Proxy {
	t.Helper()
	upstream := listen(t)
	go func() {
		for {
			c, err := upstream.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	p := proxy.New(listen(t), func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", upstream.Addr().String())
	})
	t.Cleanup(func() { p.Close(); _ = upstream.Close() })
	return p
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func dial(t *testing.T, p *proxy.Proxy) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", p.Address(), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

func hearNothing(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(impatience))
	n, err := c.Read(make([]byte, 1))
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %d bytes, %v; want silence", n, err)
	}
}

func hearTheEnd(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %d bytes, %v; want the end", n, err)
	}
}

func TestAHealthyLineCarriesEverything(t *testing.T) {
	c := dial(t, echo(t))
	say(t, c, "one")
	hear(t, c, "one")
}

func TestACutHoldsBackAndDeliversWhenItEnds(t *testing.T) {
	for name, f := range map[string]proxy.Fault{
		"what is sent": {CutUp: true}, "what is answered": {CutDown: true}, "both": {CutUp: true, CutDown: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := echo(t)
			c := dial(t, p)
			say(t, c, "a")
			hear(t, c, "a")
			p.Set(f)
			say(t, c, "b")
			hearNothing(t, c)
			fresh := dial(t, p)
			say(t, fresh, "c")
			hearNothing(t, fresh)
			p.Set(proxy.Fault{})
			hear(t, c, "b")
			hear(t, fresh, "c")
		})
	}
}

func TestAHalfOpenLineAcceptsAndNeverAnswers(t *testing.T) {
	p := echo(t)
	before := dial(t, p)
	say(t, before, "a")
	hear(t, before, "a")
	p.Set(proxy.Fault{HalfOpen: true})
	hearTheEnd(t, before)
	during := dial(t, p)
	say(t, during, "b")
	hearNothing(t, during)
	p.Set(proxy.Fault{})
	after := dial(t, p)
	say(t, after, "c")
	hear(t, after, "c")
}

func TestARefusingLineEndsConnections(t *testing.T) {
	p := echo(t)
	before := dial(t, p)
	say(t, before, "a")
	hear(t, before, "a")
	p.Set(proxy.Fault{Refuse: true})
	hearTheEnd(t, before)
	if c, err := net.DialTimeout("tcp", p.Address(), patience); err == nil { // or it was reset while connecting
		hearTheEnd(t, c)
		_ = c.Close()
	}
	p.Set(proxy.Fault{})
	after := dial(t, p)
	say(t, after, "b")
	hear(t, after, "b")
}

func TestADelayedLineDeliversLaterInOrder(t *testing.T) {
	p := echo(t)
	p.Set(proxy.Fault{Delay: impatience})
	c := dial(t, p)
	start := time.Now()
	say(t, c, "one")
	hear(t, c, "one")
	if took := time.Since(start); took < 2*impatience {
		t.Errorf("there and back took %v, less than twice the delay of %v", took, impatience)
	}
}

func TestCloseEndsWhatIsHeldBack(t *testing.T) {
	p := echo(t)
	p.Set(proxy.Fault{CutUp: true, CutDown: true})
	c := dial(t, p)
	say(t, c, "a")
	p.Close()
	hearTheEnd(t, c)
}
