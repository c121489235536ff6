package orrery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience bounds a test. No test lasts as long unless it fails.
const patience = 2 * time.Minute

// bounded returns a context that ends before the test is killed.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// serve starts a gateway with a handler.
func serve(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s
}

// connect returns a client of gateways.
func connect(t testing.TB, gateways ...*httptest.Server) *Client {
	t.Helper()
	config := Config{Credentials: StaticToken("secret")}
	for _, g := range gateways {
		config.Addresses = append(config.Addresses, g.URL)
	}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// begin starts an answer with server-sent events.
func begin(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	send(w, "")
}

// send sends a part of it.
func send(w http.ResponseWriter, text string) {
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

// hold keeps a stream open until the client leaves.
func hold(r *http.Request) { <-r.Context().Done() }

// refuse answers with an error of the API.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%q,"message":"refused with %s"}}`, code, code)
}

// script answers the n-th request with the n-th handler, and later ones with the last.
func script(handlers ...http.HandlerFunc) (handler http.HandlerFunc, requests *atomic.Int64) {
	requests = new(atomic.Int64)
	return func(w http.ResponseWriter, r *http.Request) {
		n := int(requests.Add(1))
		handlers[min(n, len(handlers))-1](w, r)
	}, requests
}

// cutListener cuts its first connection after a number of bytes.
type cutListener struct {
	net.Listener
	bytes int
	first sync.Once
}

func (l *cutListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.first.Do(func() { conn = &cutConn{Conn: conn, left: l.bytes} })
	}
	return conn, err
}

type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b[:min(len(b), c.left)])
	if c.left -= n; err == nil && n < len(b) {
		err = errors.Join(io.ErrShortWrite, c.Close())
	}
	return n, err
}

// cutEverywhere runs check with gateways whose first connection is cut after 0, 1, 2 … bytes, until one
// is not cut.
func cutEverywhere(t *testing.T, handler http.HandlerFunc, check func(ctx context.Context, c *Client) error) {
	t.Helper()
	ctx := bounded(t)
	const most = 1500 // more than a test sends
	slots, running := make(chan struct{}, 32), sync.WaitGroup{}
	whole := atomic.Int64{}
	for n := range most {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			requests := atomic.Int64{}
			g := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { requests.Add(1); handler(w, r) }))
			g.Listener = &cutListener{Listener: g.Listener, bytes: n}
			g.Config.ErrorLog = nil
			g.Start()
			defer g.Close()
			defer g.CloseClientConnections()
			c, err := New(Config{Addresses: []string{g.URL}, Credentials: StaticToken("secret")})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if err := check(ctx, c); err != nil {
				t.Errorf("cut after %d bytes: %v", n, err)
			}
			if requests.Load() == 1 {
				whole.Add(1)
			}
		})
		if whole.Load() > 0 {
			break
		}
	}
	running.Wait()
	if whole.Load() == 0 {
		t.Errorf("the stream is longer than %d bytes: cut it at all of them", most)
	}
}

// numbered is a stream that any connection continues. It ends with event 14.
func numbered(w http.ResponseWriter, r *http.Request) {
	begin(w)
	send(w, "event: connected\ndata: {\"latestSequence\":9,\"clusterId\":\"c1\"}\n\n")
	after, ok := parsePosition(r.Header.Get("Last-Event-ID"))
	for _, id := range []string{"10-1", "10-2", "11", "keep-alive 12", "13", "14"} {
		id, silent := strings.CutPrefix(id, "keep-alive ")
		switch p, _ := parsePosition(id); {
		case ok && p.compare(after) <= 0:
		case silent:
			send(w, ": keep-alive\nid: "+id+"\n\n")
		default:
			send(w, "event: message\nid: "+id+"\ndata: {\"type\":\"T\",\n")
			send(w, "data: \"sequence\":1}\n\n")
		}
	}
	hold(r)
}

func TestEventsAreNeitherLostNorRepeatedWhereverAConnectionIsCut(t *testing.T) {
	t.Parallel()
	cutEverywhere(t, numbered, func(ctx context.Context, c *Client) error {
		var got []string
		for e, err := range c.Events(ctx, EventsOptions{}) {
			if err != nil {
				return err
			}
			if got = append(got, e.ID); e.ID == "14" {
				break
			}
		}
		if want := "10-1 10-2 11 13 14"; strings.Join(got, " ") != want {
			return fmt.Errorf("got %v, want %s", got, want)
		}
		return nil
	})
}

func TestAStreamEndsWithARefusalThatAnotherAttemptDoesNotCure(t *testing.T) {
	t.Parallel()
	connected := func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		send(w, "event: connected\ndata: {\"instanceId\":\"uid\"}\n\n")
	}
	for name, test := range map[string]struct {
		status int
		kind   error
	}{
		"malformed":         {400, ErrInvalid},
		"not authenticated": {401, ErrUnauthenticated},
		"denied":            {403, ErrDenied},
		"not found":         {404, ErrNotFound},
	} {
		refusal := func(w http.ResponseWriter, _ *http.Request) { refuse(w, test.status, "REFUSED") }
		for when, handlers := range map[string][]http.HandlerFunc{"at first": {refusal}, "later": {connected, refusal}} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				for stream, run := range streams(bounded(t)) {
					handler, requests := script(handlers...)
					err := run(connect(t, serve(t, handler)))
					if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), "refused with REFUSED") {
						t.Errorf("%s: %v", stream, err)
					}
					if int(requests.Load()) != len(handlers) {
						t.Errorf("%s: %d requests, want %d", stream, requests.Load(), len(handlers))
					}
				}
			})
		}
	}
}

// streams run each stream until it ends.
func streams(ctx context.Context) map[string]func(c *Client) error {
	return map[string]func(c *Client) error{
		"events": func(c *Client) (last error) {
			for _, err := range c.Events(ctx, EventsOptions{}) {
				last = err
			}
			return last
		},
		"console": func(c *Client) (last error) {
			for _, err := range c.Console(ctx, "lobby-1", ConsoleOptions{}) {
				last = err
			}
			return last
		},
		"logs": func(c *Client) (last error) {
			for _, err := range c.SystemLogs(ctx, LogsOptions{}) {
				last = err
			}
			return last
		},
		"logs of a node": func(c *Client) (last error) {
			for _, err := range c.NodeLogs(ctx, "node-1", LogsOptions{}) {
				last = err
			}
			return last
		},
	}
}

func TestAStreamIsRetriedWhenTheGatewayCannotAnswerNow(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"unavailable":      func(w http.ResponseWriter, _ *http.Request) { refuse(w, 503, "UNAVAILABLE") },
		"too many streams": func(w http.ResponseWriter, _ *http.Request) { refuse(w, 429, "TOO_MANY_STREAMS") },
		"broken":           func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, "INTERNAL") },
		"cut before the answer": func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		},
		"ended with an error event": func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			send(w, "event: error\ndata: {\"message\":\"connect again\"}\n\n")
		},
		"ended at once": func(w http.ResponseWriter, _ *http.Request) { begin(w) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler, _ := script(handler, handler, numbered)
			lost := 0
			o := EventsOptions{OnReconnect: func(err error) {
				if lost++; err == nil {
					t.Error("no reason")
				}
			}}
			for e, err := range connect(t, serve(t, handler)).Events(bounded(t), o) {
				if err != nil || e.ID != "10-1" {
					t.Errorf("%+v, %v", e, err)
				}
				break
			}
			if lost != 2 {
				t.Errorf("lost %d times", lost)
			}
		})
	}
}

func TestTheGatewaySaysHowLongToWait(t *testing.T) {
	t.Parallel()
	if d := delay(&Error{Status: 429, RetryAfter: time.Minute}, 1); d != time.Minute {
		t.Errorf("waits %v", d)
	}
	for attempts := 1; attempts < 200; attempts++ {
		if d := delay(io.EOF, attempts); d < 0 || d > longestPause || attempts == 1 && d > firstPause {
			t.Errorf("waits %v after %d attempts", d, attempts)
		}
	}
}

// renewable has another token when the first one is rejected.
type renewable struct{ asked atomic.Int64 }

func (r *renewable) Token(_ context.Context, rejected string) (string, error) {
	if rejected == "" {
		return "old", nil
	}
	r.asked.Add(1)
	return "new", nil
}

// protected refuses other tokens than "new".
func protected(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer new" {
			refuse(w, 401, "UNAUTHENTICATED")
			return
		}
		next(w, r)
	}
}

func TestAStreamAsksOnceForAnotherToken(t *testing.T) {
	t.Parallel()
	credentials := &renewable{}
	c, err := New(Config{Addresses: []string{serve(t, protected(numbered)).URL}, Credentials: credentials})
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range c.Events(bounded(t), EventsOptions{}) {
		if err != nil || e.ID != "10-1" {
			t.Errorf("%+v, %v", e, err)
		}
		break
	}
	if n := credentials.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestAnotherGatewayContinuesWhenOneDies(t *testing.T) {
	t.Parallel()
	first := serve(t, func(w http.ResponseWriter, r *http.Request) {
		begin(w)
		send(w, "event: connected\ndata: {\"latestSequence\":9}\n\nid: 10-1\ndata: {}\n\n")
		hold(r)
	})
	second := serve(t, numbered)
	c := connect(t, first, second)
	var got []string
	for e, err := range c.Events(bounded(t), EventsOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.ID); e.ID == "10-1" {
			_ = first.Listener.Close()
			first.CloseClientConnections()
		}
		if e.ID == "14" {
			break
		}
	}
	if strings.Join(got, " ") != "10-1 10-2 11 13 14" || c.Address() != second.URL {
		t.Errorf("%v from %s", got, c.Address())
	}
}

func TestASilentStreamIsLostAndTheNextGatewayIsTried(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]http.HandlerFunc{
		"without an answer": func(_ http.ResponseWriter, r *http.Request) { hold(r) },
		"after the beginning": func(w http.ResponseWriter, r *http.Request) {
			begin(w)
			send(w, "event: connected\ndata: {}\n\ndata: {}")
			hold(r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, serve(t, silent), serve(t, numbered))
			c.silence = 300 * time.Millisecond
			var why error
			o := EventsOptions{OnReconnect: func(err error) { why = err }}
			for e, err := range c.Events(bounded(t), o) {
				if err != nil || e.ID != "10-1" {
					t.Errorf("%+v, %v", e, err)
				}
				break
			}
			if why == nil || !strings.Contains(why.Error(), "nothing arrived for 300ms") {
				t.Errorf("lost because of %v", why)
			}
		})
	}
}

func TestTheTimeOfASilenceCountsOnlyWhileTheClientReads(t *testing.T) {
	t.Parallel()
	l, _ := connect(t, serve(t, numbered)).listen(t.Context())
	defer l.close()
	if _, err := (&watchedReader{strings.NewReader("x"), l, func() {}}).Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if l.timer.Stop() {
		t.Error("it counts while the consumer works")
	}
}

func TestAStreamEndsWithTheErrorOfItsContext(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"while it is read":   sendFrames("id: 10-1\ndata: {}\n\nid: 11\ndata: {}\n\n", true),
		"while it is paused": func(w http.ResponseWriter, _ *http.Request) { refuse(w, 503, "UNAVAILABLE") },
		"while it connects":  func(_ http.ResponseWriter, r *http.Request) { hold(r) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(bounded(t))
			gateway := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if name != "while it is read" {
					cancel()
				}
				handler(w, r)
			})
			var errs []error
			for e, err := range connect(t, gateway).Events(ctx, EventsOptions{}) {
				if errs = append(errs, err); err == nil && e.ID == "10-1" {
					cancel()
				}
			}
			want := 1
			if name == "while it is read" {
				want = 2 // the event before the end
			}
			if n := len(errs); n != want || !errors.Is(errs[n-1], context.Canceled) {
				t.Errorf("%v", errs)
			}
		})
	}
}

func TestAStreamEndsWithAnErrorAtAnAnswerThatIsNone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
		}, "not an event stream: check the address"},
		"an endless frame": {func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			send(w, strings.Repeat("data: x\n", maxFrame/8+1))
		}, "longer than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for stream, run := range streams(bounded(t)) {
				handler, requests := script(test.handler)
				if err := run(connect(t, serve(t, handler))); err == nil || !strings.Contains(err.Error(), test.want) || requests.Load() != 1 {
					t.Errorf("%s: %v after %d requests", stream, err, requests.Load())
				}
			}
		})
	}
}
