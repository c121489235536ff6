package events

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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

	pos Position
	// past is the one that pos is of.
	past int
	// told is the last id the client was sent.
	told Position
	// live is true once the client was up to date: from then on it must keep up.
	live bool
	out  bytes.Buffer
}

// filter is what a client wants to hear of; empty parts want everything.
type filter struct {
	types []Type
	group fleet.GroupName
	// sees is what it may hear of; nil is everything.
	sees func(Event) bool
}

func (f filter) wants(e Event) bool {
	return (len(f.types) == 0 || slices.Contains(f.types, e.Type)) && (f.group == "" || f.group == e.Group) && (f.sees == nil || f.sees(e))
}

func newClient(s *Streams, c *gin.Context) *client {
	f := filter{group: fleet.GroupName(c.Query("group"))}
	for name := range strings.SplitSeq(c.Query("types"), ",") {
		if name = strings.TrimSpace(name); name != "" {
			f.types = append(f.types, Type(strings.ToUpper(name)), Type(name)) // those of instances are as they made them
		}
	}
	return &client{streams: s, log: s.cfg.Log, filter: f, past: s.cfg.Log.present(), w: c.Writer, rc: http.NewResponseController(c.Writer)}
}

// serve writes until the client goes, falls behind, or the streams are closed.
func (c *client) serve(ctx context.Context, start origin) {
	live, drop := c.log.tap()
	defer drop()
	keepAlive := time.NewTicker(c.streams.cfg.KeepAlive)
	defer keepAlive.Stop()
	if err := c.open(start); err != nil {
		return
	}
	for {
		if ctx.Err() != nil {
			c.expel(context.Cause(ctx))
			return
		}
		more, err := c.catchUp(ctx)
		if err != nil {
			return // the client is gone or was told why
		}
		if more == nil {
			continue
		}
		select {
		case <-more:
		case e := <-live:
			if c.filter.wants(e) {
				c.event(e)
				err = c.flush()
			}
		case <-keepAlive.C:
			err = c.keepAlive()
		case <-c.streams.closed:
			return
		case <-ctx.Done():
		}
		if err != nil {
			return
		}
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
	c.pos, c.told = start.pos, start.pos
	c.frame("connected", Fields{
		"message": "connected", "latestSequence": c.log.Head(), "clusterId": c.streams.cfg.ClusterID,
	})
	if start.lost {
		c.resync()
	}
	return c.flush()
}

// catchUp writes the next events after the cursor. With none left it returns the
// channel that says when there are more.
func (c *client) catchUp(ctx context.Context) (more <-chan struct{}, err error) {
	p := c.log.after(c.pos, writePage)
	switch {
	case p.past != c.past: // etcd was restored: nobody knows what the client saw of the past that is lost
		c.past = p.past
		c.resync()
		return nil, c.flush()
	case c.live && (p.evicted || len(p.events)+p.behind > c.streams.cfg.Backlog):
		return nil, c.cut()
	case p.older:
		return nil, c.fromHistory(ctx)
	case len(p.events) > 0:
		return nil, c.send(p.events)
	}
	c.live = true
	if c.pos.Rev < p.head {
		c.pos = Position{Rev: p.head}
	}
	return p.more, nil
}

func (c *client) fromHistory(ctx context.Context) error {
	older, next, err := c.streams.archive.after(ctx, c.pos)
	switch {
	case store.Compacted(err):
		c.resync()
		return c.flush()
	case err != nil:
		if !errs.Is(err, errs.Canceled) {
			c.streams.cfg.Slog.Warn("history not readable, stream ended", "after", c.pos.String(), "error", err)
		}
		c.frame("error", Fields{"message": "the missed events cannot be read now: connect again"})
		return cmpErr(c.flush(), err)
	}
	if err := c.sendPages(older); err != nil {
		return err
	}
	c.pos = next
	return nil
}

func (c *client) sendPages(events []Event) error {
	for page := range slices.Chunk(events, writePage) {
		if err := c.send(page); err != nil {
			return err
		}
	}
	return nil
}

// send writes events and moves the cursor behind them.
func (c *client) send(events []Event) error {
	for _, e := range events {
		if c.filter.wants(e) {
			c.event(e)
		}
	}
	c.pos = events[len(events)-1].At
	return c.flush()
}

// resync tells the client that what lies between its position and now is lost to
// it, and moves the cursor to now.
func (c *client) resync() {
	c.streams.metrics.resyncs.Inc()
	p := c.log.after(Position{}, 0)
	e := Event{Type: ResyncRequired, At: Position{Rev: p.head}, Fields: Fields{
		"lastSequence": c.pos.Rev, "earliestSequence": p.from, "latestSequence": p.head, "timestamp": time.Now().UTC(),
	}}
	e.frame = e.framed()
	c.event(e)
	c.pos = e.At
}

// cut ends the stream of a client that does not keep up. It can come back with
// its last id.
func (c *client) cut() error {
	c.streams.metrics.cut.Inc()
	c.frame("error", Fields{"message": fmt.Sprintf(
		"cut off: more than %d events behind; connect again with Last-Event-ID %s", c.streams.cfg.Backlog, c.pos)})
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
	c.out.WriteString(": keep-alive\n")
	if c.pos != c.told {
		fmt.Fprintf(&c.out, "id: %s\n", c.pos)
		c.told = c.pos
	}
	c.out.WriteByte('\n')
	return c.flush()
}

// event adds an event to what is written next.
func (c *client) event(e Event) {
	c.streams.metrics.sent.Inc()
	if !e.Live() {
		c.told = e.At
	}
	c.out.Write(e.frame)
}

// frame adds a frame of the stream itself.
func (c *client) frame(name string, data Fields) {
	b, err := json.Marshal(data)
	if err != nil { // strings and numbers only
		b = []byte("{}")
	}
	fmt.Fprintf(&c.out, "event: %s\n", name)
	fmt.Fprintf(&c.out, "data: %s\n\n", b)
}

// flush writes what was added, within the write timeout.
func (c *client) flush() error {
	if c.out.Len() == 0 {
		return nil
	}
	_ = c.rc.SetWriteDeadline(time.Now().Add(c.streams.cfg.WriteTimeout)) // unsupported by test recorders only
	_, err := c.out.WriteTo(c.w)
	if err != nil {
		return err
	}
	return c.rc.Flush()
}
