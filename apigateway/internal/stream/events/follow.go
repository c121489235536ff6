package events

import (
	"context"
	"log/slog"
	"slices"

	"github.com/orreryhq/orrery/libs/store"
)

// liveOnly are the emitted types that are never kept.
var liveOnly = []Type{
	InstanceMetrics, NodeStatus, NodeCacheStatus, NodeHeartbeatStale, NodeHeartbeatResumed, PlayerConnected, PlayerDisconnected, PlayerTransfer, ResyncRequired,
}

// Kept returns the types of events that have an ID.
func Kept() (out []string) {
	for _, t := range emitted {
		if !slices.Contains(liveOnly, t) {
			out = append(out, string(t))
		}
	}
	return out
}

// Source lets parts of the gateway follow the kept events, as streams do for clients.
type Source struct{ archive *archive }

// NewSource returns a Source. The log must be subscribed to a view that runs.
func NewSource(c *store.Client, l *Log, log *slog.Logger) *Source {
	return &Source{archive: newArchive(c, l, log)}
}

// Follower is a cursor into the kept events. It is for one goroutine.
type Follower struct {
	archive *archive
	log     *Log
	want    func(Event) bool
	at      Position
	past    int
	sub     *subscriber
	// Close ends the follower.
	Close func()
}

// Part is a part of the events, in order.
type Part struct {
	Events []Event
	// UpTo is the position up to which there are no further events that the follower wants.
	UpTo Position
	// Lost is true if the events between the last position and UpTo no longer exist.
	Lost bool
}

// Follow returns a Follower of the events after a position for which want, whose result never changes for an
// event, returns true. The caller closes it.
func (s *Source) Follow(after Position, want func(Event) bool) *Follower {
	f := &Follower{archive: s.archive, log: s.archive.log, want: func(e Event) bool { return !e.Live() && want(e) }, at: after}
	f.past = f.log.now().past
	f.sub, f.Close = f.log.subscribe(f.want)
	return f
}

// Next waits for the next events. It returns a Part without events when ctx ends, or when it has read others.
// After an error it can be called again.
func (f *Follower) Next(ctx context.Context) (Part, error) {
	for {
		p := f.log.after(cursor{pos: f.at}, writePage)
		switch {
		case p.past != f.past: // etcd was restored
			f.past = p.past
			return f.lost(p.head), nil
		case p.older:
			older, next, err := f.archive.after(ctx, f.at)
			if store.Compacted(err) {
				return f.lost(f.log.Head()), nil
			}
			f.at = next
			return f.part(older), err
		case p.behind > 0:
			f.at = p.events[len(p.events)-1].At
			return f.part(p.events), nil
		case p.head > f.at.Rev || len(p.events) > 0:
			f.at = Position{Rev: max(p.head, f.at.Rev)}
			return f.part(p.events), nil
		}
		if !f.log.await(f.sub, p.mark) {
			continue
		}
		select {
		case <-f.sub.wake:
		case <-ctx.Done():
		}
		if upTo := f.log.broadcaster.endWait(f.sub); upTo.past == f.past && upTo.head > f.at.Rev {
			f.at = Position{Rev: upTo.head}
		}
		if ctx.Err() != nil {
			return f.part(nil), nil
		}
	}
}

func (f *Follower) lost(head int64) Part {
	f.at = Position{Rev: head}
	return Part{UpTo: f.at, Lost: true}
}

func (f *Follower) part(all []Event) Part {
	out := Part{UpTo: f.at}
	for _, e := range all {
		if f.want(e) {
			out.Events = append(out.Events, e)
		}
	}
	return out
}
