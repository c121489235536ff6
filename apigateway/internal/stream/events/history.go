package events

import (
	"context"
	"log/slog"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// historyReads limits concurrent reads of etcd's history.
	historyReads = 2
	// historyPage is the number of events that one read collects before it lets others run.
	historyPage = 4096
)

// archive reads events older than the log from etcd's history.
type archive struct {
	client *store.Client
	log    *Log
	slog   *slog.Logger
	turns  chan struct{}
}

func newArchive(c *store.Client, l *Log, log *slog.Logger) *archive {
	return &archive{client: c, log: l, slog: log, turns: make(chan struct{}, historyReads)}
}

// after reads the events after a position that is older than the log, and returns the position up to
// which they are complete. It may return none if the log has been extended far enough meanwhile. If
// store.Compacted is true for the error, the events no longer exist.
func (a *archive) after(ctx context.Context, p Position) ([]Event, Position, error) {
	select {
	case a.turns <- struct{}{}:
		defer func() { <-a.turns }()
	case <-ctx.Done():
		return nil, p, errs.Wrap("events.history", ctx.Err())
	}
	bounds := a.log.after(cursor{pos: p}, 0)
	if !bounds.older { // fetched while waiting for the lock
		return nil, p, nil
	}
	from := p.Rev
	if p.N > 0 {
		from-- // the rest of this revision is still to come
	}
	from = max(from, 1)
	r := reading{limit: historyPage, to: bounds.from}
	if err := r.run(ctx, a, from); err != nil {
		return nil, p, errs.Wrap("events.history", err)
	}
	if r.upTo == bounds.from {
		a.log.prepend(from, r.upTo, r.events)
	}
	next := Position{Rev: r.upTo}
	for i, e := range r.events {
		if e.At.Compare(p) > 0 {
			return r.events[i:], next, nil
		}
	}
	return nil, next, nil
}

// reading collects the events of one replay until it has enough.
type reading struct {
	limit  int
	to     int64
	totals *Totals
	events []Event
	upTo   int64
	full   bool
	stop   context.CancelFunc
}

func (r *reading) run(ctx context.Context, a *archive, from int64) error {
	ctx, r.stop = context.WithCancel(ctx)
	defer r.stop()
	err := view.Replay(ctx, a.client, a.slog, from, r.to, r.onBatch)
	if r.full {
		return nil
	}
	return err
}

func (r *reading) onBatch(b view.Batch) {
	switch {
	case r.full:
		return
	case b.Relisted:
		r.totals = TotalsOf(b.After)
	default:
		for _, e := range Translate(b, r.totals, time.Time{}) {
			if !e.Live() {
				e.frame = e.framed()
				r.events = append(r.events, e)
			}
		}
	}
	r.upTo = b.After.Rev
	if len(r.events) >= r.limit && r.upTo < r.to {
		r.full = true
		r.stop()
	}
}
