package events

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/stream/socket"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// writePage is the number of events written at once.
const writePage = 256

// client is one open stream: a cursor into the log.
type client struct {
	streams *Streams
	log     *Log
	filter  filter
	w       http.ResponseWriter
	rc      *http.ResponseController

	at cursor
	// past identifies the etcd history that the cursor belongs to.
	past int
	// sentID is the ID of the last event sent.
	sentID Position
	// counts is true if this stream numbers its events from 1 without gaps. counted is the last number.
	counts  bool
	counted int64
	// live is true once the client is up to date. From then on it must keep up.
	live bool
	// out has the data to write next, or is nil. sent is the number of log events in it.
	out  *bytes.Buffer
	sent int
}

// filter selects a client's events. Empty parts select all.
type filter struct {
	types []Type
	group fleet.GroupName
	scope Scope
}

// mayWant is the part of wants that never changes for an event.
func (f filter) mayWant(e Event) bool {
	return (len(f.types) == 0 || slices.Contains(f.types, e.Type)) && (f.group == "" || e.concerns(f.group)) &&
		(f.scope.Type == nil || f.scope.Type(e.Type))
}

func (f filter) wants(e Event) bool {
	return f.mayWant(e) && (f.scope.Event == nil || f.scope.Event(e))
}

// typeName matches valid event types.
var typeName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}$`)

// Nameable reports whether a name is a valid event type, also for custom events of instances.
func Nameable(name string) bool { return typeName.MatchString(name) }

// checkTypes returns Malformed if a client requests an invalid type.
func checkTypes(types string) error {
	for name := range strings.SplitSeq(types, ",") {
		if name = strings.TrimSpace(name); name != "" && !Nameable(name) {
			return &errs.Error{Kind: errs.Malformed, Field: "types", Message: fmt.Sprintf("contains %q, which is not a valid event type: send types from /docs or custom ones, separated by commas", name)}
		}
	}
	return nil
}

// The sequence of an event: its revision, or its number on the connection.
const (
	byRevision   = "revision"
	byConnection = "connection"
)

// checkNumbering returns Malformed for an unknown numbering, or if the client resumes by a number that is
// only valid on its old connection.
func checkNumbering(c *gin.Context) error {
	switch by := c.Query("numbering"); by {
	case "", byRevision:
	case byConnection:
		if c.Query("lastSequence") != "" {
			return &errs.Error{Kind: errs.Malformed, Field: "lastSequence", Message: "lastSequence cannot be used with numbering=connection, because every connection counts from 1: resume with the header Last-Event-ID"}
		}
	default:
		return &errs.Error{Kind: errs.Malformed, Field: "numbering", Message: fmt.Sprintf("numbering must be %s or %s, is %q", byRevision, byConnection, by)}
	}
	return nil
}

func newClient(s *Streams, c *gin.Context) *client {
	f := filter{group: fleet.GroupName(c.Query("group"))}
	for name := range strings.SplitSeq(c.Query("types"), ",") {
		if name = strings.TrimSpace(name); name != "" {
			f.types = append(f.types, Type(strings.ToUpper(name)), Type(name)) // types made by instances keep their case
		}
	}
	return &client{
		streams: s, log: s.cfg.Log, filter: f, past: s.cfg.Log.now().past, counts: c.Query("numbering") == byConnection,
		w: c.Writer, rc: http.NewResponseController(c.Writer),
	}
}

// serve writes events until the client disconnects or falls behind, or the streams are closed.
func (c *client) serve(ctx context.Context, start origin) {
	sub, leave := c.log.subscribe(c.filter.mayWant)
	defer leave()
	keepAlive := time.NewTicker(c.streams.cfg.KeepAlive)
	defer keepAlive.Stop()
	if err := c.open(start); err != nil {
		return
	}
	for silent := false; ; {
		switch {
		case ctx.Err() != nil:
			c.expel(context.Cause(ctx))
			return
		case c.streams.ending.Err() != nil: // a client that never catches up does not reach the select
			return
		}
		known, done, err := c.catchUp(ctx)
		if done && silent && err == nil {
			silent, err = false, c.keepAlive()
		}
		if err != nil {
			return // the client disconnected or got an error event
		}
		if !done || !c.log.await(sub, known) {
			continue
		}
		select {
		case <-sub.wake:
		case <-keepAlive.C:
			silent = true
		case <-c.streams.ending.Done():
			return
		case <-ctx.Done():
		}
		c.skip(c.log.broadcaster.endWait(sub))
	}
}

// skip moves the cursor past events that the client does not want.
func (c *client) skip(upTo mark) {
	if upTo.past != c.past {
		return
	}
	c.at.liveCount = max(c.at.liveCount, upTo.liveCount)
	if upTo.head > c.at.pos.Rev {
		c.at.pos = Position{Rev: upTo.head}
	}
}

// expel tells a client that lost its permission why its stream ends.
func (c *client) expel(why error) {
	if errs.Is(why, errs.Canceled) { // the client disconnected
		return
	}
	c.frame("error", Fields{"message": "cut off: " + errs.MessageOf(why)})
	_ = c.flush() // the stream ends anyway
}

// open writes the headers and the first frame.
func (c *client) open(start origin) error {
	socket.StartEvents(c.w)
	c.at, c.sentID = cursor{pos: start.pos, liveCount: c.log.now().liveCount}, start.pos
	latest := c.log.Head()
	if c.counts {
		latest = 0
	}
	c.frame("connected", Fields{"message": "connected", "latestSequence": latest, "clusterId": c.streams.cfg.ClusterID})
	if start.lost {
		c.resync()
	}
	return c.flush()
}

// catchUp writes the next events after the cursor. done is true when the client has everything that
// the log had at the mark.
func (c *client) catchUp(ctx context.Context) (known mark, done bool, err error) {
	p := c.log.after(c.at, writePage)
	switch {
	case p.past != c.past: // etcd was restored: what the client saw of the lost revisions is unknown
		c.past = p.past
		c.resync()
		return p.mark, false, c.flush()
	case c.live && (p.evicted || len(p.events)+p.behind > c.streams.cfg.Backlog):
		return p.mark, false, c.cut()
	case p.older:
		return p.mark, false, c.fromHistory(ctx)
	}
	c.streams.metrics.lost.Add(float64(p.lost))
	if err := c.add(p.events, p.live); err != nil {
		return p.mark, false, err
	}
	if p.behind > 0 {
		c.at.pos = p.events[len(p.events)-1].At
		return p.mark, false, c.flush()
	}
	c.live = true
	c.at.liveCount = p.liveCount
	if c.at.pos.Rev < p.head {
		c.at.pos = Position{Rev: p.head}
	}
	return p.mark, true, c.flush()
}

// add appends the events and live events that the client wants, in order of arrival, to the buffer
// and writes it when it is full.
func (c *client) add(events, live []Event) error {
	for len(events)+len(live) > 0 {
		next := &events
		if len(events) == 0 || len(live) > 0 && live[0].behind.Compare(events[0].At) < 0 {
			next = &live
		}
		if e := (*next)[0]; c.filter.wants(e) {
			c.put(e)
		}
		*next = (*next)[1:]
		if c.out != nil && c.out.Len() >= flushSize {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *client) fromHistory(ctx context.Context) error {
	older, next, err := c.streams.archive.after(ctx, c.at.pos)
	switch {
	case store.Compacted(err):
		c.resync()
		return c.flush()
	case err != nil:
		if !errs.Is(err, errs.Canceled) {
			c.streams.cfg.Slog.Warn("history not readable, stream ended", "after", c.at.pos.String(), "error", err)
		}
		c.frame("error", Fields{"message": "the missed events cannot be read now: connect again"})
		return cmp.Or(c.flush(), err)
	}
	if err := c.sendPages(older); err != nil {
		return err
	}
	c.at.pos = next
	return nil
}

func (c *client) sendPages(events []Event) error {
	for page := range slices.Chunk(events, writePage) {
		if err := c.add(page, nil); err != nil {
			return err
		}
		c.at.pos = page[len(page)-1].At
		if err := c.flush(); err != nil {
			return err
		}
	}
	return nil
}

// resync tells the client that it missed the events between its position and now, and moves the
// cursor to now.
func (c *client) resync() {
	c.streams.metrics.resyncs.Inc()
	p := c.log.after(cursor{}, 0)
	last, earliest, latest := c.at.pos.Rev, p.from, p.head
	if c.counts { // it numbers its own events
		last, earliest, latest = c.counted, c.counted+1, c.counted+1
	}
	e := Event{Type: ResyncRequired, At: Position{Rev: p.head}, Fields: Fields{
		"lastSequence": last, "earliestSequence": earliest, "latestSequence": latest, "timestamp": time.Now().UTC(),
	}}
	e.frame = e.framed()
	c.put(e)
	c.at.pos = e.At
}

// cut ends the stream of a client that does not keep up. The client can resume with its last ID.
func (c *client) cut() error {
	c.streams.metrics.cut.Inc()
	c.frame("error", Fields{"message": fmt.Sprintf(
		"cut off: more than %d events behind; connect again with Last-Event-ID %s", c.streams.cfg.Backlog, c.at.pos)})
	return cmp.Or[error](c.flush(), errs.New(errs.Exhausted, "the client fell behind"))
}

// keepAlive writes a comment, which keeps proxies from closing the connection. If the cursor moved
// past unwanted events, it also writes the current ID.
func (c *client) keepAlive() error {
	out := c.buffer()
	out.WriteString(": keep-alive\n")
	if c.at.pos != c.sentID {
		fmt.Fprintf(out, "id: %s\n", c.at.pos)
		c.sentID = c.at.pos
	}
	out.WriteByte('\n')
	return c.flush()
}

// put appends an event to the buffer.
func (c *client) put(e Event) {
	c.sent++
	if !e.Live() {
		c.sentID = e.At
	}
	frame := e.frame
	if c.counts {
		c.counted++
		frame = e.framedAs(c.counted)
	}
	c.buffer().Write(frame)
}

// frame appends an event of the stream itself.
func (c *client) frame(name string, data Fields) {
	socket.WriteEvent(c.buffer(), name, "", data)
}

// buffer returns the write buffer. Clients have one only while they write, which saves memory for
// idle ones.
func (c *client) buffer() *bytes.Buffer {
	if c.out == nil {
		c.out, _ = c.streams.buffers.Get().(*bytes.Buffer)
	}
	return c.out
}

// flushSize is the size, in bytes, at which a buffer is written. It is small because many clients have one
// at the same time. maxPooled is the maximum size of a reused buffer.
const (
	flushSize = 64 << 10
	maxPooled = 2 * flushSize
)

// flush writes the buffer within the write timeout.
func (c *client) flush() error {
	if c.out == nil {
		return nil
	}
	out := c.out
	c.out = nil
	defer func() {
		if out.Reset(); out.Cap() <= maxPooled {
			c.streams.buffers.Put(out)
		}
	}()
	c.streams.metrics.sent.Add(float64(c.sent))
	c.sent = 0
	_ = c.rc.SetWriteDeadline(time.Now().Add(c.streams.cfg.WriteTimeout)) // unsupported by test recorders only
	if _, err := c.w.Write(out.Bytes()); err != nil {
		return err
	}
	return c.rc.Flush()
}
