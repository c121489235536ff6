package orrery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// say sends a message to an attached client.
func say(conn *websocket.Conn, format string, args ...any) {
	_ = conn.Write(context.Background(), websocket.MessageText, fmt.Appendf(nil, format, args...))
}

// attaching upgrades requests and serves the connection until it returns.
func attaching(serve func(ctx context.Context, conn *websocket.Conn, r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		say(conn, `{"type":"connected","instanceId":"uid-1"}`)
		serve(r.Context(), conn, r)
	}
}

// echo prints what a client types, with its number as the offset.
func echo(typed *atomic.Int64) func(context.Context, *websocket.Conn, *http.Request) {
	return func(ctx context.Context, conn *websocket.Conn, _ *http.Request) {
		for {
			_, line, err := conn.Read(ctx)
			if err != nil {
				return
			}
			say(conn, `{"type":"output","line":%q,"offset":%d}`, line, typed.Add(1))
		}
	}
}

// attach opens an attachment that ends with the test.
func attach(t *testing.T, c *Client, o ConsoleOptions) *Attachment {
	t.Helper()
	a, err := c.Attach(bounded(t), "lobby-1", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// shown streams log and the end over a WebSocket.
func shown(_ context.Context, conn *websocket.Conn, r *http.Request) {
	say(conn, `{"type":"waiting","message":"the agent is away"}`)
	linesFrom(startOf(r), func(line string, next int) {
		if strings.Contains(line, "\xff") {
			say(conn, `{"type":"output","data":"dGhy/2Vl","offset":%d}`, next)
			return
		}
		say(conn, `{"type":"output","line":%q,"offset":%d}`, line, next)
	})
	say(conn, `{"type":"end","offset":%d,"message":"CRASHED (Crashed): it crashed","end":{"state":"CRASHED","reason":"Crashed","message":"it crashed","generation":2,"exitCode":3}}`, len(log))
	_ = conn.Close(websocket.StatusNormalClosure, "CRASHED")
}

func TestAnAttachmentIsNeitherLostNorRepeatsALineWhereverAConnectionIsCut(t *testing.T) {
	t.Parallel()
	cutEverywhere(t, attaching(shown), func(ctx context.Context, c *Client) error {
		a, err := c.Attach(ctx, "lobby-1", ConsoleOptions{})
		if err != nil {
			return err
		}
		err = checkTranscript(transcript(a.Events()))
		if sending := a.Send(ctx, "late"); err == nil && (!errors.Is(sending, ErrDetached) || !strings.Contains(sending.Error(), "the instance has ended")) {
			err = fmt.Errorf("sending after the end: %w", sending)
		}
		return errors.Join(err, a.Close())
	})
}

func TestAnAttachmentStaysWithItsInstance(t *testing.T) {
	t.Parallel()
	handler, _ := script(
		func(w http.ResponseWriter, _ *http.Request) { refuse(w, 503, "UNAVAILABLE") },
		attaching(func(_ context.Context, conn *websocket.Conn, _ *http.Request) {
			say(conn, `{"type":"output","line":"one","offset":4}`)
		}),
		attaching(shown))
	handler, requests := recorded(handler)
	a := attach(t, connect(t, serve(t, handler)), ConsoleOptions{Lines: 7})
	if err := checkTranscript(transcript(a.Events())); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"/api/v1/services/lobby-1/attach?lines=7", "/api/v1/services/lobby-1/attach?lines=7", "/api/v1/services/uid-1/attach?offset=4",
	} {
		if r := <-requests; r.URL.RequestURI() != want || r.Header.Get("Authorization") != "Bearer secret" || r.UserAgent() != "orrery-sdk" {
			t.Errorf("requested %s with %v, want %s", r.URL.RequestURI(), r.Header, want)
		}
	}
}

func TestALineIsConfirmedAndItsRefusalIsAnEvent(t *testing.T) {
	t.Parallel()
	a := attach(t, connect(t, serve(t, attaching(func(ctx context.Context, conn *websocket.Conn, _ *http.Request) {
		say(conn, `{"type":"output","line":"ready","offset":6}`)
		_, line, _ := conn.Read(ctx)
		say(conn, `{"type":"error","message":"%s is refused"}`, line)
		say(conn, `{"type":"suppressed","message":"suppressed 3 lines","lines":3,"offset":90}`)
		say(conn, `{"type":"later"}`)
		_, _, _ = conn.Read(ctx)
		say(conn, `{"type":"end","offset":90,"message":"the record is gone"}`)
		_, _, _ = conn.Read(ctx)
	}))), ConsoleOptions{})
	if err := a.Send(bounded(t), "stop"); err != nil {
		t.Error(err)
	}
	go func() { _ = a.Send(bounded(t), "end") }() // the end may come before its confirmation
	var got []string
	for e, err := range a.Events() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %d %d %s", e.Kind, e.Offset, e.Suppressed, e.Line+e.Message))
	}
	want := "output 6 0 ready, error 6 0 stop is refused, suppressed 90 3 suppressed 3 lines, end 90 0 "
	if strings.Join(got, ", ") != want {
		t.Errorf("got %s", strings.Join(got, ", "))
	}
}

func TestALineWaitsForAConnection(t *testing.T) {
	t.Parallel()
	typed, back, lost := atomic.Int64{}, make(chan struct{}), make(chan struct{})
	handler, _ := script(
		attaching(func(context.Context, *websocket.Conn, *http.Request) {}), // ends at once
		func(w http.ResponseWriter, r *http.Request) {
			<-back
			attaching(echo(&typed))(w, r)
		})
	a := attach(t, connect(t, serve(t, handler)), ConsoleOptions{OnReconnect: func(error) { close(lost) }})
	<-lost
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Send(ctx, "early"); !errors.Is(err, context.Canceled) {
		t.Errorf("without a connection: %v", err)
	}
	sent := make(chan error)
	go func() { sent <- a.Send(bounded(t), "patient") }()
	close(back)
	if err := <-sent; err != nil {
		t.Error(err)
	}
	for e, err := range a.Events() {
		if err != nil || e.Line != "patient" {
			t.Errorf("%+v, %v", e, err)
		}
		break
	}
	if typed.Load() != 1 {
		t.Errorf("%d lines were typed", typed.Load())
	}
}

func TestALineWhoseConfirmationIsLostIsNotSentAgain(t *testing.T) {
	t.Parallel()
	typed := atomic.Int64{}
	handler, _ := script(
		attaching(func(ctx context.Context, conn *websocket.Conn, _ *http.Request) {
			_, _, _ = conn.Read(ctx) // the connection is cut before the pong
			typed.Add(1)
		}),
		attaching(echo(&typed)))
	a := attach(t, connect(t, serve(t, handler)), ConsoleOptions{})
	if err := a.Send(bounded(t), "first"); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("%v", err)
	}
	if err := a.Send(bounded(t), "second"); err != nil {
		t.Error(err)
	}
	for e, err := range a.Events() {
		if err != nil || e.Line != "second" || typed.Load() != 2 {
			t.Errorf("%+v, %v after %d lines", e, err, typed.Load())
		}
		break
	}
}

func TestALineMayBeSentWhileMuchOutputWaits(t *testing.T) {
	t.Parallel()
	const lines = 3 * maxQueued / 1000
	line := strings.Repeat("x", 1000)
	a := attach(t, connect(t, serve(t, attaching(func(ctx context.Context, conn *websocket.Conn, _ *http.Request) {
		for n := range lines {
			say(conn, `{"type":"output","line":%q,"offset":%d}`, line, n+1)
		}
		_, _, _ = conn.Read(ctx)
		_, _, _ = conn.Read(ctx)
		say(conn, `{"type":"end","offset":%d}`, lines)
		_, _, _ = conn.Read(ctx)
	}))), ConsoleOptions{})
	seen := 0
	for e, err := range a.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != ConsoleOutput {
			continue
		}
		if seen++; e.Offset != int64(seen) {
			t.Fatalf("line %d has offset %d", seen, e.Offset)
		}
		if seen == 1 {
			if err := a.Send(bounded(t), "in the loop of the events"); err != nil {
				t.Fatal(err)
			}
			go func() { _ = a.Send(bounded(t), "end") }() // the end may come before its confirmation
		}
	}
	if seen != lines {
		t.Errorf("%d lines", seen)
	}
}

func TestAnAttachmentEndsWithARefusal(t *testing.T) {
	t.Parallel()
	denied := func(w http.ResponseWriter, _ *http.Request) { refuse(w, 403, "FORBIDDEN") }
	c := connect(t, serve(t, denied))
	if _, err := c.Attach(bounded(t), "lobby-1", ConsoleOptions{}); !errors.Is(err, ErrDenied) || err.Error() != "refused with FORBIDDEN" {
		t.Errorf("at first: %v", err)
	}
	handler, _ := script(attaching(func(_ context.Context, conn *websocket.Conn, _ *http.Request) {
		_ = conn.Close(websocket.StatusPolicyViolation, "cut off")
	}), denied)
	a := attach(t, connect(t, serve(t, handler)), ConsoleOptions{})
	if _, _, err := transcript(a.Events()); !errors.Is(err, ErrDenied) {
		t.Errorf("later: %v", err)
	}
	if err := a.Send(bounded(t), "x"); !errors.Is(err, ErrDetached) || !errors.Is(err, ErrDenied) {
		t.Errorf("sending: %v", err)
	}
}

func TestAnAttachmentAsksForAnotherToken(t *testing.T) {
	t.Parallel()
	credentials := &renewable{}
	c, err := New(Config{Addresses: []string{serve(t, protected(attaching(shown))).URL}, Credentials: credentials})
	if err != nil {
		t.Fatal(err)
	}
	if err := checkTranscript(transcript(attach(t, c, ConsoleOptions{}).Events())); err != nil || credentials.asked.Load() != 1 {
		t.Errorf("%v, asked %d times", err, credentials.asked.Load())
	}
}

func TestASilentAttachmentIsLostAndTheNextGatewayIsTried(t *testing.T) {
	t.Parallel()
	silent := serve(t, attaching(func(ctx context.Context, conn *websocket.Conn, _ *http.Request) { <-ctx.Done() }))
	c := connect(t, silent, serve(t, attaching(shown)))
	c.silence = 300 * time.Millisecond
	var why atomic.Value
	a := attach(t, c, ConsoleOptions{OnReconnect: func(err error) { why.CompareAndSwap(nil, err.Error()) }})
	if err := checkTranscript(transcript(a.Events())); err != nil {
		t.Error(err)
	}
	if reason, _ := why.Load().(string); !strings.Contains(reason, "nothing arrived for 300ms") {
		t.Errorf("lost because of %q", reason)
	}
}

func TestAPingEndsASilence(t *testing.T) {
	t.Parallel()
	c := connect(t, serve(t, attaching(func(ctx context.Context, conn *websocket.Conn, _ *http.Request) {
		reading := conn.CloseRead(ctx)
		_ = conn.Ping(reading)
		say(conn, "{}")
		<-reading.Done()
	})))
	s, err := (&Attachment{client: c, position: newConsolePosition("lobby-1", ConsoleOptions{})}).dial(bounded(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.arrived()
	for range 2 { // the beginning, then the message behind the ping
		if _, _, err := s.conn.Read(bounded(t)); err != nil {
			t.Fatal(err)
		}
	}
	if !s.timer.Stop() || !s.progress {
		t.Error("the time did not start again")
	}
}

func TestCloseAndTheContextEndAnAttachment(t *testing.T) {
	t.Parallel()
	typed := atomic.Int64{}
	c := connect(t, serve(t, attaching(echo(&typed))))
	a := attach(t, c, ConsoleOptions{})
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if lines, end, err := transcript(a.Events()); lines != nil || end.Kind != "" || err != nil {
		t.Errorf("after Close: %v, %+v, %v", lines, end, err)
	}
	if err := a.Send(bounded(t), "x"); !errors.Is(err, ErrDetached) || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after Close: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b, err := c.Attach(ctx, "lobby-1", ConsoleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, _, err := transcript(b.Events()); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context: %v", err)
	}
}

func TestAMessageThatIsNotUnderstoodEndsAnAttachment(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"x": "not understood", `{"type":"output","line":"` + strings.Repeat("x", maxFrame) + `"}`: "too long",
	} {
		a := attach(t, connect(t, serve(t, attaching(func(ctx context.Context, conn *websocket.Conn, _ *http.Request) {
			say(conn, "%s", message)
			_, _, _ = conn.Read(ctx)
		}))), ConsoleOptions{})
		if _, _, err := transcript(a.Events()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
}
