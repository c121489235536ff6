package orrery

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ResyncRequired is the type of an event that says: events are missing here, because the gateway no
// longer has them or the cluster was restored from a backup. Read the state again. New events follow.
const ResyncRequired = "RESYNC_REQUIRED"

// EventsOptions select events.
type EventsOptions struct {
	// Types are the types to receive. None means all.
	Types []string
	// Group limits the stream to the events of a group; "" means all events.
	Group string
	// After is the ID of an event. The stream begins with the next one. If it is empty, the stream begins
	// when it is connected.
	After string
	// OnConnect is called when a gateway has confirmed a connection. From the first call on, no event
	// with an ID is missed. It may be nil.
	OnConnect func()
	// OnReconnect is called when a connection was lost or not made, before the pause before the next
	// one. It may be nil.
	OnReconnect func(err error)
}

// Event is a change in the cluster.
type Event struct {
	// ID is the position of the event, for EventsOptions.After. It is empty for live events, which a
	// client gets only while it is connected.
	ID string
	// Type is the type, such as INSTANCE_STATE_CHANGED.
	Type string
	// Sequence is the revision of the change; 0 for live events.
	Sequence int64
	// Time is the timestamp of the event. It is zero for types without one.
	Time time.Time
	// Data is the whole event, a JSON object.
	Data json.RawMessage
}

// Events returns the events of the cluster as they happen.
//
// The sequence reconnects by itself, at any gateway, and has each event with an ID exactly once and in
// order. If a gateway no longer has some events, an event of type ResyncRequired is in their place. The
// sequence ends only with an error: that of ctx, or *Error if a gateway refuses for good, for example
// because the token is no longer valid.
func (c *Client) Events(ctx context.Context, o EventsOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s := &eventStream{options: o, after: o.After, yield: yield}
		s.last, _ = parsePosition(o.After)
		if err := c.subscribe(ctx, s, o.OnReconnect); err != nil {
			yield(Event{}, err)
		}
	}
}

// eventStream is a subscription to events.
type eventStream struct {
	options EventsOptions
	yield   func(Event, error) bool
	// after is the ID to resume after. cluster is the cluster that gave it; "" if unknown.
	after, cluster string
	// connectedTo is the cluster of the connection.
	connectedTo string
	// last is the position up to which events were delivered. It is zero if events of any position may
	// follow.
	last position
}

func (s *eventStream) request() Request {
	query := url.Values{}
	if len(s.options.Types) > 0 {
		query.Set("types", strings.Join(s.options.Types, ","))
	}
	if s.options.Group != "" {
		query.Set("group", s.options.Group)
	}
	header := http.Header{}
	if s.after != "" {
		header.Set("Last-Event-ID", s.after)
		if s.cluster != "" {
			query.Set("clusterId", s.cluster)
		}
	}
	return Request{Method: http.MethodGet, Path: "/api/v1/events/stream", Query: query, Header: header}
}

func (s *eventStream) accept(f frame) error {
	switch {
	case f.event == "connected":
		return s.connected(f.data)
	case f.hasData && (f.event == "" || f.event == "message"):
		return s.deliver(f)
	case f.hasID:
		s.advance(f.id)
	}
	return nil
}

func (s *eventStream) idle() {}

// connected takes the position of a stream that begins now.
func (s *eventStream) connected(data []byte) error {
	var start struct {
		LatestSequence int64  `json:"latestSequence"`
		ClusterID      string `json:"clusterId"`
	}
	if err := json.Unmarshal(data, &start); err != nil {
		return fmt.Errorf("the event stream does not begin as expected: %w", err)
	}
	s.connectedTo = start.ClusterID
	if s.after == "" {
		s.after, s.cluster = strconv.FormatInt(start.LatestSequence, 10), s.connectedTo
	}
	if s.options.OnConnect != nil {
		s.options.OnConnect()
	}
	return nil
}

// deliver yields an event, unless it was delivered before.
func (s *eventStream) deliver(f frame) error {
	var fields struct {
		Type      string          `json:"type"`
		Sequence  int64           `json:"sequence"`
		Timestamp json.RawMessage `json:"timestamp"`
	}
	if err := json.Unmarshal(f.data, &fields); err != nil {
		return fmt.Errorf("event %s is not a JSON object: %w", f.id, err)
	}
	event := Event{ID: f.id, Type: fields.Type, Sequence: fields.Sequence, Data: f.data}
	_ = json.Unmarshal(fields.Timestamp, &event.Time) // only some events have one
	if event.Type == ResyncRequired {
		s.last = position{} // IDs may begin again
	}
	if f.hasID && !s.advance(f.id) {
		return nil
	}
	if !s.yield(event, nil) {
		return errDone
	}
	return nil
}

// advance moves the position to an ID. It returns false if the ID is not after the position.
func (s *eventStream) advance(id string) bool {
	if p, ok := parsePosition(id); ok {
		if s.last != (position{}) && p.compare(s.last) <= 0 {
			return false
		}
		s.last = p
	} else if id == s.after {
		return false
	}
	s.after, s.cluster = id, s.connectedTo
	return true
}

// position is a parsed ID of an event: "<revision>" or "<revision>-<n>".
type position struct {
	revision int64
	// n is the number of an event in the revision; math.MaxInt64 after all of them.
	n int64
}

func parsePosition(id string) (p position, ok bool) {
	revision, n, several := strings.Cut(id, "-")
	p.n = math.MaxInt64
	var err error
	if p.revision, err = strconv.ParseInt(revision, 10, 64); err != nil {
		return position{}, false
	}
	if several {
		if p.n, err = strconv.ParseInt(n, 10, 64); err != nil {
			return position{}, false
		}
	}
	return p, true
}

func (p position) compare(o position) int {
	return cmp.Or(cmp.Compare(p.revision, o.revision), cmp.Compare(p.n, o.n))
}
