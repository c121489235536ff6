package commandapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/apigateway/internal/stream/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is what do returns at the far side of a client that reads nothing.
func served(t *testing.T, do func(*terminal) error) error {
	t.Helper()
	came := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err == nil {
			err = do(&terminal{Socket: socket.Socket{Conn: conn, Timeout: 50 * time.Millisecond}})
			_ = conn.CloseNow()
		}
		came <- err
	}))
	defer srv.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	conn, _, err := websocket.Dial(t.Context(), srv.URL, &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}}) //nolint:bodyclose // of an upgrade there is none
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow() //nolint:errcheck // the far side has
	return <-came
}

func TestAClientThatTakesNothingIsCut(t *testing.T) {
	line := strings.Repeat("x", 64<<10)
	err := served(t, func(t *terminal) error {
		for {
			if err := t.say(line); err != nil {
				return err
			}
		}
	})
	var mute *muteError
	if !errors.As(err, &mute) && !errors.Is(err, errSlow) {
		t.Errorf("ended with %v", err)
	}
}

func TestAClientThatKeepsACommandWaitingIsSlow(t *testing.T) {
	err := served(t, func(t *terminal) error {
		t.Timeout = time.Minute
		t.waited = t.Timeout
		return t.say("x")
	})
	if !errors.Is(err, errSlow) {
		t.Errorf("ended with %v", err)
	}
}

// one is a listener to which one client comes.
type one struct {
	net.Conn
	came  chan net.Conn
	ended chan struct{}
}

func newOne(c net.Conn) *one {
	l := &one{Conn: c, came: make(chan net.Conn, 1), ended: make(chan struct{})}
	l.came <- c
	return l
}

func (l *one) Accept() (net.Conn, error) {
	select {
	case c := <-l.came:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *one) Addr() net.Addr { return l.LocalAddr() }
func (l *one) Close() error   { close(l.ended); return nil }

func TestAnIdleConsoleIsToldAtOnceThatItsGatewayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		s := &API{pool: socket.NewPool(1, 0, "consoles", nil)}
		s.pool.Close()
		began, idle := time.Now(), aliveEvery*3/2 // so that it has been alive for a while, and nothing is under way
		srv := &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			ctx, end := context.WithCancel(context.WithoutCancel(r.Context()))
			time.AfterFunc(idle, end)
			(&terminal{api: s, Socket: socket.Socket{Conn: conn, Timeout: time.Hour}}).serve(ctx)
			_ = conn.CloseNow()
			if took := time.Since(began); took != idle {
				t.Errorf("it is served for %v", took)
			}
		})}
		var serving sync.WaitGroup
		serving.Go(func() { _ = srv.Serve(newOne(near)) })
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return far, nil }}
		conn, _, err := websocket.Dial(t.Context(), "ws://gateway/", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}}) //nolint:bodyclose // of an upgrade there is none
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
			t.Errorf("ended with %v", err)
		}
		if took := time.Since(began); took != idle {
			t.Errorf("told after %v", took)
		}
		_ = conn.CloseNow()
		transport.CloseIdleConnections()
		synctest.Wait()
		_ = srv.Close()
		serving.Wait()
	})
}
