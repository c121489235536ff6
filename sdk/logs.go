package orrery

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// LogsOptions select records of a log.
type LogsOptions struct {
	// Level is the lowest level: DEBUG, INFO, WARN or ERROR. "" means all.
	Level string
	// Logger is the beginning of the name of the logger. "" means all.
	Logger string
	// Tail is how many stored records to begin with: 0 means the default of the gateway (200), a negative
	// number means none. With none, records written during a loss of the connection before the first
	// record are missed.
	Tail int
	// OnReconnect is called when a connection was lost or not made, before the pause before the next
	// one. It may be nil.
	OnReconnect func(err error)
}

// LogEvent is a record of a log, or a gap in it.
type LogEvent struct {
	// Gap is true if records are missing here, because the process no longer stores them or because of
	// a clock that is ahead. Message says so; the other fields are zero.
	Gap bool
	// Seq identifies the record. It increases with every record of a process.
	Seq int64
	// Time is when the record was written.
	Time time.Time
	// Level is DEBUG, INFO, WARN or ERROR.
	Level string
	// Logger is the package that wrote the record. Process is the process.
	Logger, Process string
	// Message is the text. Error is the error of the record, or empty.
	Message, Error string
	// Attributes are the other attributes.
	Attributes map[string]string
}

// SystemLogs returns the log of a gateway as it is written. After a lost connection it continues, but
// maybe with the log of another gateway: Process tells. It ends only with an error: that of ctx, or
// *Error if a gateway refuses for good.
func (c *Client) SystemLogs(ctx context.Context, o LogsOptions) iter.Seq2[LogEvent, error] {
	return c.logs(ctx, "/api/v1/system/logs/stream", o)
}

// NodeLogs returns the log of a node's agent as it is written. It waits for an agent that is not
// connected. It ends only with an error: that of ctx, or *Error if a gateway refuses for good.
func (c *Client) NodeLogs(ctx context.Context, node string, o LogsOptions) iter.Seq2[LogEvent, error] {
	return c.logs(ctx, "/api/v1/nodes/"+url.PathEscape(node)+"/logs/stream", o)
}

func (c *Client) logs(ctx context.Context, path string, o LogsOptions) iter.Seq2[LogEvent, error] {
	return func(yield func(LogEvent, error) bool) {
		if err := c.subscribe(ctx, &logStream{path: path, options: o, yield: yield}, o.OnReconnect); err != nil {
			yield(LogEvent{}, err)
		}
	}
}

// logStream is a subscription to a log.
type logStream struct {
	path    string
	options LogsOptions
	yield   func(LogEvent, error) bool
	// after is the number of the last record; 0 if none. last is the same, but 0 after a gap, because
	// the records after it may come from a clock that is behind.
	after, last int64
}

func (s *logStream) request() Request {
	query, header := url.Values{}, http.Header{}
	if s.options.Level != "" {
		query.Set("level", s.options.Level)
	}
	if s.options.Logger != "" {
		query.Set("logger", s.options.Logger)
	}
	if s.options.Tail != 0 {
		query.Set("tail", strconv.Itoa(max(s.options.Tail, 0)))
	}
	if s.after != 0 {
		header.Set("Last-Event-ID", strconv.FormatInt(s.after, 10))
	}
	return Request{Method: http.MethodGet, Path: s.path, Query: query, Header: header}
}

func (s *logStream) idle() {}

func (s *logStream) accept(f frame) error {
	var record struct {
		Seq       int64             `json:"seq"`
		TS        int64             `json:"ts"`
		Level     string            `json:"level"`
		Logger    string            `json:"logger"`
		Thread    string            `json:"thread"`
		Message   string            `json:"message"`
		Throwable string            `json:"throwable"`
		MDC       map[string]string `json:"mdc"`
	}
	if f.event != "log" && f.event != "gap" {
		return nil
	}
	if err := json.Unmarshal(f.data, &record); err != nil {
		return fmt.Errorf("%s sent an event that is not understood: %w", s.path, err)
	}
	event := LogEvent{
		Gap: f.event == "gap", Seq: record.Seq, Level: record.Level, Logger: record.Logger, Process: record.Thread,
		Message: record.Message, Error: record.Throwable, Attributes: record.MDC,
	}
	switch {
	case event.Gap:
		s.last = 0
	case event.Seq <= s.last:
		return nil
	default:
		event.Time = time.UnixMilli(record.TS)
		s.after, s.last = event.Seq, event.Seq
	}
	if !s.yield(event, nil) {
		return errDone
	}
	return nil
}
