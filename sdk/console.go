package orrery

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// ConsoleKind says what a ConsoleEvent reports.
type ConsoleKind string

// The kinds of console events.
const (
	// ConsoleOutput is a line of output.
	ConsoleOutput ConsoleKind = "output"
	// ConsoleSuppressed reports output that was skipped, because the instance prints faster than the
	// client reads, or because the log no longer has it.
	ConsoleSuppressed ConsoleKind = "suppressed"
	// ConsoleWaiting says why there is no output now, for example that the node is not connected. The
	// stream continues by itself.
	ConsoleWaiting ConsoleKind = "waiting"
	// ConsoleRefused says why a line of an Attachment was not typed.
	ConsoleRefused ConsoleKind = "error"
	// ConsoleEnded is the last event: the instance has ended.
	ConsoleEnded ConsoleKind = "end"
)

// ConsoleOptions say where a console begins.
type ConsoleOptions struct {
	// Offset is the byte offset in the log to begin at, such as ConsoleEvent.Offset. Nil means to begin
	// with the last lines.
	Offset *int64
	// Lines is how many of the last lines to begin with: 0 means the default of the gateway (500), a
	// negative number means none. With none, lines printed during a loss of the connection before the
	// first event are missed.
	Lines int
	// OnReconnect is called when a connection was lost or not made, before the pause before the next
	// one. It may be nil.
	OnReconnect func(err error)
	// OnIdle is called when everything that has arrived was returned, before waiting for more. Programs
	// that buffer their output flush it then. Only Console calls it. It may be nil.
	OnIdle func()
}

// ConsoleEvent is a line of a console, or a note about it.
type ConsoleEvent struct {
	Kind ConsoleKind
	// Offset is the byte offset in the log after the output that the event reports: where to resume
	// after it. For other kinds it is that of the event before, or 0.
	Offset int64
	// Line is a line of output, with all its bytes except the line end. It may have terminal control
	// sequences, and need not be UTF-8. A line longer than 64 KiB comes in parts.
	Line string
	// Suppressed is the number of skipped lines; 0 if unknown.
	Suppressed int64
	// Message explains an event that is not a line.
	Message string
	// End says how the instance ended. It is nil unless Kind is ConsoleEnded.
	End *ConsoleEnd
}

// ConsoleEnd says how an instance ended.
type ConsoleEnd struct {
	// State is the final state. It is empty if the gateway no longer knows.
	State string `json:"state"`
	// Reason is why, for programs. Message is a sentence for people.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Generation counts the starts of the instance.
	Generation int64 `json:"generation"`
	// ExitCode is that of the process; nil if it is unknown or no process ran.
	ExitCode *int `json:"exitCode"`
}

// Console returns the output of an instance, named by its ID or name, as it is printed.
//
// The sequence ends without an error after ConsoleEnded. Until then it reconnects by itself, at any
// gateway, and continues at the same byte of the same instance, even if another one has got its name. It
// ends with an error if ctx ends, or with *Error if a gateway refuses for good.
func (c *Client) Console(ctx context.Context, instance string, o ConsoleOptions) iter.Seq2[ConsoleEvent, error] {
	return func(yield func(ConsoleEvent, error) bool) {
		s := &consoleStream{consolePosition: newConsolePosition(instance, o), onIdle: o.OnIdle, yield: yield}
		if err := c.subscribe(ctx, s, o.OnReconnect); err != nil {
			yield(ConsoleEvent{}, err)
		}
	}
}

// consolePosition is where in a console a client is.
type consolePosition struct {
	// instance is the name or ID that the caller gave, and the ID once a gateway told it.
	instance string
	lines    int
	// offset is where to continue; nil if at the last lines.
	offset *int64
}

func newConsolePosition(instance string, o ConsoleOptions) consolePosition {
	return consolePosition{instance: instance, lines: o.Lines, offset: o.Offset}
}

// request returns the request that continues a console at a route.
func (p *consolePosition) request(route string) Request {
	query := url.Values{}
	switch {
	case p.offset != nil:
		query.Set("offset", strconv.FormatInt(*p.offset, 10))
	case p.lines != 0:
		query.Set("lines", strconv.Itoa(max(p.lines, 0)))
	}
	return Request{Method: http.MethodGet, Path: "/api/v1/services/" + url.PathEscape(p.instance) + route, Query: query}
}

// take moves the position behind an event and completes the event's offset. It returns false for an
// event that was taken before. A smaller offset is not a repetition, but in another log: the instance
// moved to another node.
func (p *consolePosition) take(e *ConsoleEvent) bool {
	switch e.Kind {
	case ConsoleOutput, ConsoleSuppressed:
		if p.offset != nil && e.Offset == *p.offset {
			return false
		}
		offset := e.Offset
		p.offset = &offset
	case ConsoleWaiting, ConsoleRefused:
		if p.offset != nil {
			e.Offset = *p.offset
		}
	case ConsoleEnded:
	}
	return true
}

// consoleStream is a subscription to a console.
type consoleStream struct {
	consolePosition
	onIdle func()
	yield  func(ConsoleEvent, error) bool
}

func (s *consoleStream) idle() {
	if s.onIdle != nil {
		s.onIdle()
	}
}

func (s *consoleStream) request() Request {
	r := s.consolePosition.request("/console")
	r.Query.Set("encoding", "base64")
	return r
}

func (s *consoleStream) accept(f frame) error {
	if f.event == "connected" {
		return s.connected(f.data)
	}
	event, err := consoleEventOf(f)
	if err != nil {
		return fmt.Errorf("the console of %s sent an event that is not understood: %w", s.instance, err)
	}
	if event.Kind == "" || !s.take(&event) {
		return nil
	}
	if !s.yield(event, nil) || event.Kind == ConsoleEnded {
		return errDone
	}
	return nil
}

func (p *consolePosition) connected(data []byte) error {
	var start struct {
		InstanceID string `json:"instanceId"`
	}
	if err := json.Unmarshal(data, &start); err != nil || start.InstanceID == "" {
		return fmt.Errorf("the console of %s does not begin with the ID of the instance: %.100s", p.instance, data)
	}
	p.instance = start.InstanceID
	return nil
}

// consoleEventOf returns the event of a frame. A frame without an event gives an event without a kind.
func consoleEventOf(f frame) (e ConsoleEvent, err error) {
	if !f.hasData {
		return e, nil
	}
	if f.hasID {
		number, _ := strings.CutSuffix(f.id, "-end")
		if e.Offset, err = strconv.ParseInt(number, 10, 64); err != nil {
			return ConsoleEvent{}, err
		}
	}
	switch f.event {
	case "", "message":
		line, err := base64.StdEncoding.DecodeString(string(f.data))
		e.Kind, e.Line = ConsoleOutput, string(line)
		return e, err
	case "end":
		e.Kind, e.End = ConsoleEnded, new(ConsoleEnd)
		err = json.Unmarshal(f.data, e.End)
		e.Message = e.End.Message
		return e, err
	case "suppressed", "waiting":
		var note struct {
			Message string `json:"message"`
			Lines   int64  `json:"lines"`
		}
		err = json.Unmarshal(f.data, &note)
		e.Kind, e.Message, e.Suppressed = ConsoleKind(f.event), note.Message, note.Lines
	}
	return e, err
}
