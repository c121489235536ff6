// Package relay hands events that are live only to all gateways: what an instance says, through
// whichever gateway, is told to the clients of each. Nothing of it is kept: a gateway that
// cannot be reached, or does not keep up, misses some, and nobody waits for it.
//
//	Tell ─▶ own clients
//	     └▶ a queue ─▶ a line to each other gateway ─POST─▶ its clients
//
// A gateway asks another to end the same way, and is told whether it does.
//
// Gateways find each other by their sessions, and prove themselves by the cluster secret.
package relay

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/apigateway/internal/events"
	"github.com/orreryhq/orrery/apigateway/internal/peer"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
)

// Path is where gateways take events of others, EndPath where they are asked to end.
const (
	Path    = "/internal/v1/events"
	EndPath = "/internal/v1/end"
)

const (
	// gather is how long more events are waited for after the first of a batch.
	gather = 10 * time.Millisecond
	// maxQueued bounds the events that wait to be sent, and maxBytes them and a batch, in
	// bytes of what they say.
	maxQueued = 4096
	maxBytes  = 4 << 20
	// maxBody is what a gateway takes at once: a batch, and its framing.
	maxBody = 2 * maxBytes
	// ahead is how many batches wait for one gateway.
	ahead = 8
	// patience is how long one has to take a batch.
	patience = 3 * time.Second
)

// Config is what a relay needs; all of it is required.
type Config struct {
	// Replica is this gateway's name, Peers are the sessions of all gateways that live.
	Replica string
	Peers   func() []*fleet.Session
	// Secret is the cluster's.
	Secret string
	Client *http.Client
	Events *events.Log
	// End has this gateway end once what is under way is answered.
	End     func()
	Log     *slog.Logger
	Metrics *telemetry.Metrics
}

// Relay is one gateway's end. It is safe for concurrent use.
type Relay struct {
	cfg     Config
	wake    chan struct{}
	dropped *prometheus.CounterVec

	// mu guards what follows: the events that wait, and how many bytes they have.
	mu     sync.Mutex
	queued []message
	bytes  int
}

// message is an event on its way.
type message struct {
	Type   events.Type                `json:"type"`
	Group  fleet.GroupName            `json:"group,omitempty"`
	Fields map[string]json.RawMessage `json:"fields"`
}

// batch is what one gateway tells another.
type batch struct {
	// From and To are replicas: what comes to another than was meant, because several
	// have the same address, is dropped.
	From   string    `json:"from"`
	To     string    `json:"to"`
	Events []message `json:"events"`
}

// New makes a relay that sends nothing before it runs.
func New(cfg Config) *Relay {
	return &Relay{
		cfg: cfg, wake: make(chan struct{}, 1),
		dropped: cfg.Metrics.Counter("live_events_dropped", "Live events that another gateway was not told of, because it or this one did not keep up."),
	}
}

// Tell tells the clients of all gateways of an event, whose id it takes away.
func (r *Relay) Tell(e events.Event) {
	r.cfg.Events.Tell(e)
	m := message{Type: e.Type, Group: e.Group, Fields: map[string]json.RawMessage{}}
	size := 0
	for name, v := range e.Fields {
		b, err := json.Marshal(v)
		if err != nil {
			return // nothing that can be told
		}
		m.Fields[name] = b
		size += len(name) + len(b)
	}
	r.mu.Lock()
	full := len(r.queued) >= maxQueued || r.bytes+size > maxBytes
	if !full {
		r.queued, r.bytes = append(r.queued, m), r.bytes+size
	}
	r.mu.Unlock()
	if full {
		r.dropped.WithLabelValues().Inc()
		return
	}
	select {
	case r.wake <- struct{}{}:
	default: // it is awake
	}
}

func (r *Relay) take() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.queued
	r.queued, r.bytes = nil, 0
	return out
}

// Run sends until ctx ends.
func (r *Relay) Run(ctx context.Context) {
	var sending sync.WaitGroup
	lines := map[string]line{}
	defer sending.Wait()
	defer func() {
		for _, l := range lines {
			close(l.batches)
		}
	}()
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		if !pause.For(ctx, gather) {
			return
		}
		said, there := r.take(), map[string]bool{}
		for _, p := range r.cfg.Peers() {
			if p.Replica == r.cfg.Replica {
				continue
			}
			l, ok := lines[p.Replica]
			if ok && l.url != p.URL { // it came back elsewhere
				close(l.batches)
				ok = false
			}
			if !ok {
				l = line{url: p.URL, batches: make(chan batch, ahead)}
				lines[p.Replica] = l
				sending.Go(func() { r.send(ctx, l) })
			}
			there[p.Replica] = true
			select {
			case l.batches <- batch{From: r.cfg.Replica, To: p.Replica, Events: said}:
			default:
				r.dropped.WithLabelValues().Add(float64(len(said)))
			}
		}
		for name, l := range lines {
			if !there[name] {
				close(l.batches)
				delete(lines, name)
			}
		}
	}
}

// line leads to another gateway.
type line struct {
	url     string
	batches chan batch
}

// send sends what comes until the line is closed.
func (r *Relay) send(ctx context.Context, l line) {
	for b := range l.batches {
		ctx, cancel := context.WithTimeout(ctx, patience)
		err := wire.Call(ctx, r.cfg.Client, wire.Request{Method: http.MethodPost, URL: strings.TrimSuffix(l.url, "/") + Path, Token: r.cfg.Secret, Body: b}, nil)
		cancel()
		if err != nil {
			r.dropped.WithLabelValues().Add(float64(len(b.Events)))
			r.cfg.Log.Debug("live events not told to another gateway", "replica", b.To, "url", l.url, "error", err)
		}
	}
}

// Doors are where other gateways tell and ask this one.
func (r *Relay) Doors() []peer.Door {
	return []peer.Door{
		{Method: http.MethodPost, Path: Path, Open: r.hear},
		{Method: http.MethodPost, Path: EndPath, Open: r.endOnRequest},
	}
}

// hear tells this gateway's clients of another's events.
func (r *Relay) hear(w http.ResponseWriter, req *http.Request) {
	var b batch
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxBody)).Decode(&b); err != nil {
		http.Error(w, "not a batch of events", http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
	if b.To != r.cfg.Replica || b.From == r.cfg.Replica {
		return
	}
	for _, m := range b.Events {
		fields := make(events.Fields, len(m.Fields))
		for name, v := range m.Fields {
			fields[name] = v
		}
		r.cfg.Events.Tell(events.Event{Type: m.Type, Group: m.Group, Fields: fields})
	}
}

// wish is that a gateway ends.
type wish struct {
	To string `json:"to"`
}

// maxWish bounds a wish, in bytes.
const maxWish = 4 << 10

// AskToEnd has another gateway end once it has answered what is under way. Conflict when it is
// another that answers at its address, Unavailable when nobody does.
func (r *Relay) AskToEnd(ctx context.Context, other *fleet.Session) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := wire.Call(ctx, r.cfg.Client, wire.Request{
		Method: http.MethodPost, URL: strings.TrimSuffix(other.URL, "/") + EndPath, Token: r.cfg.Secret, Body: wish{To: other.Replica},
	}, nil)
	if errs.Is(err, errs.Unavailable) {
		return &errs.Error{Kind: errs.Unavailable, Op: "relay.AskToEnd", Message: "it does not answer", Err: err}
	}
	return errs.Wrap("relay.AskToEnd", err)
}

// endOnRequest ends this gateway, if it is the one that is meant.
func (r *Relay) endOnRequest(w http.ResponseWriter, req *http.Request) {
	var asked wish
	err := wire.DecodeJSON(http.MaxBytesReader(w, req.Body, maxWish), 0, &asked)
	if err == nil && asked.To != r.cfg.Replica {
		err = errs.New(errs.Conflict, "this is the gateway %s", r.cfg.Replica)
	}
	if err != nil {
		wire.Encode(w, wire.Internal, "", err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
	r.cfg.End()
}
