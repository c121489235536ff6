package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// stream is a minimal client of the event stream, because many of them share the CPUs with
// the gateway they measure.
type stream struct {
	conn net.Conn
	resp *http.Response
	in   *bufio.Scanner
	// last is the ID of the last event.
	last string
}

// listen opens a stream after an ID, or from now on if it is empty.
func (e *eventBench) listen(ctx context.Context, url, after string) (*stream, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/events/stream", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+e.token)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", req.URL.Host)
	if err != nil {
		return nil, err
	}
	s := &stream{conn: conn, last: after}
	if err := s.open(req); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// open sends the request and reads the first frame.
func (s *stream) open(req *http.Request) error {
	_ = s.conn.SetDeadline(time.Now().Add(eventPatience))
	if err := req.Write(s.conn); err != nil {
		return err
	}
	var err error
	if s.resp, err = http.ReadResponse(bufio.NewReader(s.conn), req); err != nil {
		return err
	}
	if s.resp.StatusCode != http.StatusOK {
		_, err := answered(req.URL.String(), s.resp)
		return err
	}
	s.in = bufio.NewScanner(s.resp.Body)
	for s.in.Scan() {
		if s.in.Text() == "" {
			return nil
		}
	}
	return fmt.Errorf("the stream ended before it began: %v", s.in.Err())
}

// Close closes the connection.
func (s *stream) Close() { _ = s.conn.Close() }

var groupName = []byte(`"groupName":"`)

// next returns the group of the next event. It fails when events were lost or the gateway
// ends the stream.
func (s *stream) next() (string, error) {
	_ = s.conn.SetReadDeadline(time.Now().Add(eventPatience))
	id := s.last
	for s.in.Scan() {
		line := s.in.Bytes()
		switch {
		case bytes.HasPrefix(line, []byte("id: ")):
			id = string(line[len("id: "):])
		case bytes.HasPrefix(line, []byte("event: error")):
			return "", errCutOff
		case bytes.Contains(line, []byte("RESYNC_REQUIRED")):
			return "", errLost
		case len(line) == 0:
			s.last = id
		default:
			if _, rest, ok := bytes.Cut(line, groupName); ok {
				name, _, _ := bytes.Cut(rest, []byte(`"`))
				s.last = id
				return string(name), nil
			}
		}
	}
	return "", fmt.Errorf("%w: %v", errEnded, s.in.Err())
}

var (
	errLost   = errors.New("the gateway says that events are lost")
	errCutOff = errors.New("the gateway cut the stream")
	errEnded  = errors.New("the stream ended")
)

// until reads up to the event of a group.
func (s *stream) until(group string) error {
	for {
		name, err := s.next()
		if err != nil || name == group {
			return err
		}
	}
}

// heard is what a client received: the delay of each event.
type heard struct {
	delays []time.Duration
	err    error
}

// hearAll receives count events of a writing, each once and in order.
func (s *stream) hearAll(w *writing, count int) (out heard) {
	out.delays = make([]time.Duration, 0, count)
	for n := 0; n < count; {
		name, err := s.next()
		if err != nil {
			return heard{err: fmt.Errorf("after %d events: %w", n, err)}
		}
		if !strings.HasPrefix(name, w.prefix) {
			continue
		}
		if name != w.name(n) {
			return heard{err: fmt.Errorf("heard of %s in the place of %s", name, w.name(n))}
		}
		out.delays = append(out.delays, w.late(n))
		n++
	}
	return out
}
