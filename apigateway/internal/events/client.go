package events

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// writePage is how many events are written at once.
const writePage = 256

// client is one open stream: a cursor into the log.
type client struct {
	streams *Streams
	log     *Log
	filter  filter
	w       http.ResponseWriter
	rc      *http.ResponseController

	at cursor
	// past is the one that the cursor is of.
	past int
	// told is the last id the client was sent.
	told Position
	// counts is true when the events of this stream are numbered from 1 on, without gaps;
	// counted is the latest number.
	counts  bool
	counted int64
	// live is true once the client was up to date: from then on it must keep up.
	live bool
	// out is what is written next, nil for nothing, and sent how many events of the log are in it.
	out  *bytes.Buffer
	sent int
	// until is when a write that is stuck fails.
	until time.Time
}

// filter is what a client wants to hear of; empty parts want everything.
type filter struct {
	types []Type
	group fleet.GroupName
	// sight is what it may hear of.
	sight Sight
}

// hears is wants as far as it never changes.
func (f filter) hears(e Event) bool {
	return (len(f.types) == 0 || slices.Contains(f.types, e.Type)) && (f.group == "" || e.concerns(f.group)) &&
		(f.sight.Hears == nil || f.sight.Hears(e.Type))
}

func (f filter) wants(e Event) bool { return f.hears(e) && (f.sight.Sees == nil || f.sight.Sees(e)) }

// typeName is what the type of any event looks like.
var typeName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}$`)

// Nameable reports whether a name may be the type of an event, one of an instance's own making
// among them.
func Nameable(name string) bool { return typeName.MatchString(name) }

// nameable is Malformed when a client asks for a type that no event can have.
func nameable(types string) error {
	for name := range strings.SplitSeq(types, ",") {
		if name = strings.TrimSpace(name); name != "" && !Nameable(name) {
			return &errs.Error{Kind: errs.Malformed, Field: "types", Message: fmt.Sprintf("has %q, which is no event's type: name some of /docs, or of your own, with commas between them", name)}
		}
	}
	return nil
}

// What the sequence of an event is: its revision, or its number on the connection.
const (
	byRevision   = "revision"
	byConnection = "connection"
)

// numbering is Malformed when a client asks for a sequence that there is not, or resumes by one
// that says nothing on another connection.
func numbering(c *gin.Context) error {
	switch by := c.Query("numbering"); by {
	case "", byRevision:
	case byConnection:
		if c.Query("lastSequence") != "" {
			return &errs.Error{Kind: errs.Malformed, Field: "lastSequence", Message: "lastSequence says nothing with numbering=connection, where every connection counts from 1: resume with the header Last-Event-ID"}
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
			f.types = append(f.types, Type(strings.ToUpper(name)), Type(name)) // those of instances are as they made them
		}
	}
	return &client{
		streams: s, log: s.cfg.Log, filter: f, past: s.cfg.Log.now().past, counts: c.Query("numbering") == byConnection,
		w: c.Writer, rc: http.NewResponseController(c.Writer),
	}
}

// serve writes until the client goes, falls behind, or the streams are closed.
func (c *client) serve(ctx context.Context, start origin) {
	ear, leave := c.log.join(c.filter.hears)
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
		case c.streams.ended(): // who is never up to date does not wait below
			return
		}
		known, done, err := c.catchUp(ctx)
		if done && silent && err == nil {
			silent, err = false, c.keepAlive()
		}
		if err != nil {
			return // the client is gone or was told why
		}
		if !done || !c.log.await(ear, known) {
			continue
		}
		select {
		case <-ear.called:
		case <-keepAlive.C:
			silent = true
		case <-c.streams.closed:
			return
		case <-ctx.Done():
		}
		c.skip(c.log.crowd.rouse(ear))
	}
}

// skip moves the cursor past what is nothing to the client.
func (c *client) skip(upTo mark) {
	if upTo.past != c.past {
		return
	}
	c.at.told = max(c.at.told, upTo.told)
	if upTo.head > c.at.pos.Rev {
		c.at.pos = Position{Rev: upTo.head}
	}
}

// expel tells a client that may not see events any more why its stream ends.
func (c *client) expel(why error) {
	if errs.Is(why, errs.Canceled) { // it has gone
		return
	}
	c.frame("error", Fields{"message": "cut off: " + errs.MessageOf(why)})
	_ = c.flush() // nobody is told of more
}

// open writes the headers and the first frame.
func (c *client) open(start origin) error {
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")      // a proxy that buffers would hold events back
	_ = c.rc.SetReadDeadline(time.Time{}) // nothing more is read; unsupported is as good
	c.w.WriteHeader(http.StatusOK)
	c.at, c.told = cursor{pos: start.pos, told: c.log.now().told}, start.pos
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

// catchUp writes the next events after the cursor. done is true when the client then knows
// all that the log has, which is what it had at the mark.
func (c *client) catchUp(ctx context.Context) (known mark, done bool, err error) {
	p := c.log.after(c.at, writePage)
	switch {
	case p.past != c.past: // etcd was restored: nobody knows what the client saw of the past that is lost
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
	c.at.told = p.told
	if c.at.pos.Rev < p.head {
		c.at.pos = Position{Rev: p.head}
	}
	return p.mark, true, c.flush()
}

// add adds what the client wants of some events and of live ones, in the order in which they
// were heard, to what is written next. What is more than fits is written at once.
func (c *client) add(events, live []Event) error {
	for len(events)+len(live) > 0 {
		next := &events
		if len(events) == 0 || len(live) > 0 && live[0].behind.Compare(events[0].At) < 0 {
			next = &live
		}
		c.event((*next)[0])
		*next = (*next)[1:]
		if c.out != nil && c.out.Len() >= fits {
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
		return cmpErr(c.flush(), err)
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

// resync tells the client that what lies between its position and now is lost to
// it, and moves the cursor to now.
func (c *client) resync() {
	c.streams.metrics.resyncs.Inc()
	p := c.log.after(cursor{}, 0)
	last, earliest, latest := c.at.pos.Rev, p.from, p.head
	if c.counts { // its own number is the next
		last, earliest, latest = c.counted, c.counted+1, c.counted+1
	}
	e := Event{Type: ResyncRequired, At: Position{Rev: p.head}, Fields: Fields{
		"lastSequence": last, "earliestSequence": earliest, "latestSequence": latest, "timestamp": time.Now().UTC(),
	}}
	e.frame = e.framed()
	c.put(e)
	c.at.pos = e.At
}

// cut ends the stream of a client that does not keep up. It can come back with
// its last id.
func (c *client) cut() error {
	c.streams.metrics.cut.Inc()
	c.frame("error", Fields{"message": fmt.Sprintf(
		"cut off: more than %d events behind; connect again with Last-Event-ID %s", c.streams.cfg.Backlog, c.at.pos)})
	return cmpErr(c.flush(), errs.New(errs.Exhausted, "the client fell behind"))
}

func cmpErr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// keepAlive writes the comment that keeps proxies from hanging up and, when the
// cursor moved past events the client did not want, the id it stands at.
func (c *client) keepAlive() error {
	out := c.buffer()
	out.WriteString(": keep-alive\n")
	if c.at.pos != c.told {
		fmt.Fprintf(out, "id: %s\n", c.at.pos)
		c.told = c.at.pos
	}
	out.WriteByte('\n')
	return c.flush()
}

// event adds an event to what is written next, if the client wants it.
func (c *client) event(e Event) {
	if c.filter.wants(e) {
		c.put(e)
	}
}

// put adds an event to what is written next.
func (c *client) put(e Event) {
	c.sent++
	if !e.Live() {
		c.told = e.At
	}
	frame := e.frame
	if c.counts {
		c.counted++
		frame = e.framedAs(c.counted)
	}
	c.buffer().Write(frame)
}

// frame adds a frame of the stream itself.
func (c *client) frame(name string, data Fields) {
	b, err := json.Marshal(data)
	if err != nil { // strings and numbers only
		b = []byte("{}")
	}
	fmt.Fprintf(c.buffer(), "event: %s\n", name)
	fmt.Fprintf(c.buffer(), "data: %s\n\n", b)
}

// buffer is what is written next. Clients have one while they write: a thousand that are
// silent need no memory for it.
func (c *client) buffer() *bytes.Buffer {
	if c.out == nil {
		c.out, _ = c.streams.buffers.Get().(*bytes.Buffer)
	}
	return c.out
}

// fits is the size at which a buffer is written, with more to come or not: many clients have
// one at the same time, and what waits for all is in the log. maxKept is the size up to which
// a buffer is used again. Both are in bytes.
const (
	fits    = 64 << 10
	maxKept = 2 * fits
)

// flush writes what was added, within the write timeout.
func (c *client) flush() error {
	if c.out == nil {
		return nil
	}
	out := c.out
	c.out = nil
	defer func() {
		if out.Reset(); out.Cap() <= maxKept {
			c.streams.buffers.Put(out)
		}
	}()
	c.streams.metrics.sent.Add(float64(c.sent))
	c.sent = 0
	c.allow(time.Now())
	if _, err := c.w.Write(out.Bytes()); err != nil {
		return err
	}
	return c.rc.Flush()
}

// allow gives a write the write timeout, or up to half as much again: it is not set anew
// for each.
func (c *client) allow(now time.Time) {
	timeout := c.streams.cfg.WriteTimeout
	if c.until.Sub(now) < timeout {
		c.until = now.Add(timeout + timeout/2)
		_ = c.rc.SetWriteDeadline(c.until) // unsupported by test recorders only
	}
}
