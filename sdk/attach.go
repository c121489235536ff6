package orrery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"sync"

	"github.com/coder/websocket"
)

var (
	// ErrUnknownOutcome means that a line may have been typed or not, because the connection was lost
	// before the gateway confirmed it.
	ErrUnknownOutcome = errors.New("it is not known whether the line was typed")
	// ErrDetached means that an Attachment has ended.
	ErrDetached = errors.New("not attached")
)

// maxQueued is how many bytes of output an Attachment stores for Events before it stops reading.
const maxQueued = 1 << 20

// eventOverhead is what an event counts in addition to its line.
const eventOverhead = 128

// Attachment is an instance's console to read and to type into. It may be used concurrently.
type Attachment struct {
	client *Client
	// position belongs to run.
	position consolePosition
	cancel   context.CancelFunc
	// done is closed when run has ended. err is why; nil if the instance has ended or Close was called.
	done chan struct{}
	err  error
	// sender has an element while a Send is in progress.
	sender chan struct{}

	// mu guards the fields below.
	mu sync.Mutex
	// conn is nil without a connection.
	conn *websocket.Conn
	// queue has the events for Events. size is what they count.
	queue []ConsoleEvent
	size  int
	// sending is true while a line waits for its confirmation. The queue may then grow, because the
	// confirmation is behind the output.
	sending bool
	closed  bool
	// changed is closed and renewed when a field above changes.
	changed chan struct{}
}

// Attach opens the console of an instance, named by its ID or name, to read and to type. It fails if no
// gateway answers or one refuses. Later the attachment reconnects by itself, like Console, until ctx
// ends, the instance ends, a gateway refuses for good, or Close is called.
func (c *Client) Attach(ctx context.Context, instance string, o ConsoleOptions) (*Attachment, error) {
	ctx, cancel := context.WithCancel(ctx)
	a := &Attachment{
		client: c, position: newConsolePosition(instance, o), cancel: cancel,
		done: make(chan struct{}), sender: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	first, err := a.dial(ctx, c.maxAttempts)
	if err != nil {
		cancel()
		return nil, err
	}
	go a.run(ctx, first, o.OnReconnect)
	return a, nil
}

// Close detaches and waits until the connection is closed. It always returns nil.
func (a *Attachment) Close() error {
	a.update(func() { a.closed = true })
	a.cancel()
	<-a.done
	return nil
}

// Events returns the output, and notes about it. The sequence ends without an error after
// ConsoleEnded or Close, and otherwise with an error like that of Console. If a loop over it stops
// early, the next one continues.
//
// Read events while lines are sent: refusals arrive here, as ConsoleRefused, and an attachment whose
// events are not read stops receiving.
func (a *Attachment) Events() iter.Seq2[ConsoleEvent, error] {
	return func(yield func(ConsoleEvent, error) bool) {
		for {
			event, ok := a.next()
			if !ok {
				break
			}
			if !yield(event, nil) {
				return
			}
		}
		if a.err != nil {
			yield(ConsoleEvent{}, a.err)
		}
	}
}

// Send types a line, which must not contain a line end. Without a connection it waits for one until ctx
// ends. It returns nil when the gateway has the line. The node may still refuse it, for example because
// the instance does not run: then Events has a ConsoleRefused, which does not name the line.
//
// A line is never sent twice. If the connection is lost before the gateway confirmed the line, the error
// is ErrUnknownOutcome: look at the output before you send it again. After the end of the attachment
// the error is ErrDetached.
func (a *Attachment) Send(ctx context.Context, line string) error {
	if len(line) > maxFrame {
		return fmt.Errorf("the line has %d bytes, at most %d can be sent", len(line), maxFrame)
	}
	select {
	case a.sender <- struct{}{}:
		defer func() { <-a.sender }()
	case <-ctx.Done():
		return ctx.Err()
	}
	conn, err := a.begin(ctx)
	if err != nil {
		return err
	}
	defer a.update(func() { a.sending = false })
	ctx, cancel := context.WithTimeout(ctx, a.client.silence)
	defer cancel()
	err = conn.Write(ctx, websocket.MessageText, []byte(line))
	if err == nil {
		err = conn.Ping(ctx) // the gateway answers after it has taken the line
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return nil
}

// begin waits for a connection and starts sending on it.
func (a *Attachment) begin(ctx context.Context) (conn *websocket.Conn, err error) {
	for {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		a.mu.Lock()
		changed := a.changed
		if a.conn != nil {
			conn, a.sending = a.conn, true
			a.notify()
		}
		a.mu.Unlock()
		if conn != nil {
			return conn, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-a.done:
			return nil, a.detached()
		}
	}
}

// detached returns the error of Send after the end.
func (a *Attachment) detached() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.err != nil:
		return fmt.Errorf("%w: %w", ErrDetached, a.err)
	case a.closed:
		return fmt.Errorf("%w: the attachment is closed", ErrDetached)
	}
	return fmt.Errorf("%w: the instance has ended", ErrDetached)
}

// update changes fields and wakes those who wait for a change.
func (a *Attachment) update(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	a.notify()
}

func (a *Attachment) notify() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// next waits for the next event. ok is false after the last one.
func (a *Attachment) next() (event ConsoleEvent, ok bool) {
	for {
		over := false
		select {
		case <-a.done: // before the queue, which may get events until then
			over = true
		default:
		}
		a.mu.Lock()
		changed := a.changed
		if ok = len(a.queue) > 0; ok {
			event, a.queue = a.queue[0], a.queue[1:]
			a.size -= len(event.Line) + eventOverhead
			a.notify()
		}
		a.mu.Unlock()
		if ok || over {
			return event, ok
		}
		select {
		case <-changed:
		case <-a.done:
		}
	}
}

// add queues an event. It waits while the queue is full.
func (a *Attachment) add(ctx context.Context, event ConsoleEvent) error {
	for {
		a.mu.Lock()
		changed, room := a.changed, a.size < maxQueued || a.sending
		if room {
			a.queue = append(a.queue, event)
			a.size += len(event.Line) + eventOverhead
			a.notify()
		}
		a.mu.Unlock()
		if room {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run receives events until the attachment ends.
func (a *Attachment) run(ctx context.Context, first *socket, onReconnect func(error)) {
	defer close(a.done)
	defer a.cancel()
	err := reconnect(ctx, onReconnect, func(ctx context.Context) (progress bool, err error) {
		conn := first
		if first = nil; conn == nil {
			if conn, err = a.dial(ctx, 1); err != nil {
				return false, err
			}
		}
		defer conn.close()
		err = a.receive(ctx, conn)
		return conn.progress, err
	})
	a.update(func() {
		if ctx.Err() != nil {
			a.queue = nil
		}
		if !a.closed {
			a.err = err
		}
	})
}

// socket is one connection of an attachment.
type socket struct {
	*listening
	conn *websocket.Conn
	// stop keeps the end of the connection's context from closing conn.
	stop func() bool
	// progress is true if something came after the beginning.
	progress bool
}

// dial opens a connection at the current position. The caller closes it.
func (a *Attachment) dial(ctx context.Context, attempts int) (*socket, error) {
	s := &socket{}
	s.listening, ctx = a.client.listen(ctx)
	request := a.position.request("/attach")
	_, err := a.client.try(ctx, attempts, func(address *url.URL, token string) (*http.Response, error) {
		s.address = address
		return s.shake(ctx, request, token)
	})
	if err != nil {
		err = s.cause(err)
		s.listening.close()
		return nil, err
	}
	s.conn.SetReadLimit(maxFrame)
	s.stop = context.AfterFunc(ctx, func() { _ = s.conn.CloseNow() })
	return s, nil
}

// shake makes one attempt to open the WebSocket.
func (s *socket) shake(ctx context.Context, request Request, token string) (*http.Response, error) {
	header := http.Header{"User-Agent": {s.client.userAgent}}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	target := s.address.String() + request.Path + "?" + request.Query.Encode()
	conn, response, err := websocket.Dial(ctx, target, &websocket.DialOptions{
		HTTPClient: s.client.http, HTTPHeader: header,
		OnPingReceived: func(context.Context, []byte) bool {
			s.progress = true
			s.wait()
			return true
		},
	})
	if err != nil && response != nil && response.StatusCode >= http.StatusBadRequest {
		return response, nil
	}
	s.conn = conn
	return response, err
}

func (s *socket) close() {
	s.stop()
	_ = s.conn.CloseNow()
	s.listening.close()
}

// attachMessage is a message of the gateway.
type attachMessage struct {
	Type ConsoleKind `json:"type"`
	// Line is a line of output. Data has its bytes instead if they are not UTF-8.
	Line     string      `json:"line"`
	Data     []byte      `json:"data"`
	Offset   int64       `json:"offset"`
	Lines    int64       `json:"lines"`
	Message  string      `json:"message"`
	Instance string      `json:"instanceId"`
	End      *ConsoleEnd `json:"end"`
}

// receive queues the events of a connection until it ends. The error is never nil.
func (a *Attachment) receive(ctx context.Context, s *socket) error {
	defer a.update(func() { a.conn = nil })
	for {
		message, err := s.read(ctx)
		if err != nil {
			return err
		}
		if message.Type == "connected" {
			if message.Instance != "" {
				a.position.instance = message.Instance
			}
			a.update(func() { a.conn = s.conn })
			continue
		}
		s.progress = true
		event, ok := message.event()
		if !ok || !a.position.take(&event) {
			continue
		}
		if err := a.add(ctx, event); err != nil {
			return s.lost(err)
		}
		if event.Kind == ConsoleEnded {
			return errDone
		}
	}
}

// read waits for a message.
func (s *socket) read(ctx context.Context) (m attachMessage, err error) {
	s.wait()
	_, data, err := s.conn.Read(ctx)
	s.arrived()
	switch {
	case errors.Is(err, websocket.ErrMessageTooBig):
		return m, fmt.Errorf("the console sent a message that is too long: %w", errFrameTooLong)
	case err != nil:
		return m, s.lost(err)
	}
	err = json.NewDecoder(bytes.NewReader(data)).Decode(&m)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the library returns a cut message like a whole one
		return m, s.lost(io.ErrUnexpectedEOF)
	case err != nil:
		return m, fmt.Errorf("the console sent a message that is not understood: %w", err)
	}
	return m, nil
}

// event returns the event of a message. ok is false for one of an unknown type.
func (m attachMessage) event() (e ConsoleEvent, ok bool) {
	e = ConsoleEvent{Kind: m.Type, Offset: m.Offset, Message: m.Message}
	switch m.Type {
	case ConsoleOutput:
		e.Line = m.Line
		if m.Data != nil {
			e.Line = string(m.Data)
		}
	case ConsoleSuppressed:
		e.Suppressed = m.Lines
	case ConsoleEnded:
		e.End = m.End
		if e.End == nil {
			e.End = new(ConsoleEnd)
		}
		e.Message = e.End.Message
	case ConsoleWaiting, ConsoleRefused:
	default:
		return e, false
	}
	return e, true
}
