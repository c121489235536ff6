// Package relay sends live events, which are not stored, to all gateways: an event that an instance
// sends through one gateway reaches the clients of each. A gateway that is unreachable or too slow
// misses events; the others do not wait for it.
//
//	Publish ─▶ own clients
//	        └▶ a queue ─▶ a link to each other gateway ─POST─▶ its clients
//
// The same connections carry requests to shut down another gateway.
//
// Gateways find each other by their sessions; package peer says how they authenticate.
package relay

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/apigateway/internal/server/peer"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
)

// Path is the endpoint that receives events of other gateways, EndPath the one for shutdown requests.
const (
	Path    = "/internal/v1/events"
	EndPath = "/internal/v1/end"
)

const (
	// gather is how long a batch waits for more events.
	gather = 10 * time.Millisecond
	// maxQueued limits the queued events. maxBytes limits the size of their fields, and that of a
	// batch, in bytes.
	maxQueued = 4096
	maxBytes  = 4 << 20
	// maxBody limits the body of a request: a batch with its encoding overhead.
	maxBody = 2 * maxBytes
	// ahead is the number of queued batches per gateway.
	ahead = 8
	// patience limits the time for sending a batch.
	patience = 3 * time.Second
)

// Config has what a Relay needs. All fields are required.
type Config struct {
	// Replica is this gateway's name. Peers returns the sessions of all live gateways.
	Replica string
	Peers   func() []*cluster.Session
	Client  *peer.Client
	Events  *events.Log
	// End shuts this gateway down after the requests in progress.
	End     func()
	Log     *slog.Logger
	Metrics *telemetry.Metrics
}

// Relay exchanges live events with the other gateways. It is safe for concurrent use.
type Relay struct {
	cfg     Config
	wake    chan struct{}
	dropped *prometheus.CounterVec

	// mu guards the queued events and their size in bytes.
	mu     sync.Mutex
	queued []message
	bytes  int
}

// message is an encoded event.
type message struct {
	Type   events.Type                `json:"type"`
	Group  fleet.GroupName            `json:"group,omitempty"`
	Fields map[string]json.RawMessage `json:"fields"`
}

// batch is the body of a request with events.
type batch struct {
	// From and To are replicas. A gateway drops a batch for another one, which it can get if
	// several have the same address.
	From   string    `json:"from"`
	To     string    `json:"to"`
	Events []message `json:"events"`
}

// New returns a Relay. It sends nothing until Run.
func New(cfg Config) *Relay {
	return &Relay{
		cfg: cfg, wake: make(chan struct{}, 1),
		dropped: cfg.Metrics.Counter("live_events_dropped", "Live events that were not sent to another gateway because it or this one was too slow."),
	}
}

// Publish sends an event to the clients of all gateways. It clears the event's ID.
func (r *Relay) Publish(e events.Event) {
	r.cfg.Events.Publish(e)
	m := message{Type: e.Type, Group: e.Group, Fields: map[string]json.RawMessage{}}
	size := 0
	for name, v := range e.Fields {
		b, err := json.Marshal(v)
		if err != nil {
			return // cannot be encoded
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
	default: // Run is already awake
	}
}

func (r *Relay) take() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.queued
	r.queued, r.bytes = nil, 0
	return out
}

// Run sends events to the other gateways until ctx ends.
func (r *Relay) Run(ctx context.Context) {
	var sending sync.WaitGroup
	links := map[string]link{}
	defer sending.Wait()
	defer func() {
		for _, l := range links {
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
			l, ok := links[p.Replica]
			if ok && l.url != r.cfg.Client.URL(p) { // the gateway restarted at another address
				close(l.batches)
				ok = false
			}
			if !ok {
				l = link{url: r.cfg.Client.URL(p), batches: make(chan batch, ahead)}
				links[p.Replica] = l
				sending.Go(func() { r.send(ctx, l) })
			}
			there[p.Replica] = true
			select {
			case l.batches <- batch{From: r.cfg.Replica, To: p.Replica, Events: said}:
			default:
				r.dropped.WithLabelValues().Add(float64(len(said)))
			}
		}
		for name, l := range links {
			if !there[name] {
				close(l.batches)
				delete(links, name)
			}
		}
	}
}

// link sends batches to another gateway.
type link struct {
	url     string
	batches chan batch
}

// send sends batches until the link is closed.
func (r *Relay) send(ctx context.Context, l link) {
	for b := range l.batches {
		ctx, cancel := context.WithTimeout(ctx, patience)
		err := r.cfg.Client.Call(ctx, http.MethodPost, l.url, Path, b, nil)
		cancel()
		if err != nil {
			r.dropped.WithLabelValues().Add(float64(len(b.Events)))
			r.cfg.Log.Debug("cannot send live events to another gateway", "replica", b.To, "url", l.url, "error", err)
		}
	}
}

// PeerEndpoints returns the endpoints for requests of other gateways.
func (r *Relay) PeerEndpoints() []peer.Endpoint {
	return []peer.Endpoint{
		{Method: http.MethodPost, Path: Path, Handle: r.receive},
		{Method: http.MethodPost, Path: EndPath, Handle: r.handleShutdown},
	}
}

// receive sends the events of another gateway to this gateway's clients.
func (r *Relay) receive(w http.ResponseWriter, req *http.Request) {
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
		r.cfg.Events.Publish(events.Event{Type: m.Type, Group: m.Group, Fields: fields})
	}
}

// shutdownRequest asks a gateway to shut down.
type shutdownRequest struct {
	To string `json:"to"`
}

// maxShutdownRequest limits a shutdownRequest, in bytes.
const maxShutdownRequest = 4 << 10

// RequestShutdown makes another gateway shut down after the requests in progress. It returns Conflict
// if another gateway answers at its address, and Unavailable if none does.
func (r *Relay) RequestShutdown(ctx context.Context, other *cluster.Session) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := r.cfg.Client.Call(ctx, http.MethodPost, r.cfg.Client.URL(other), EndPath, shutdownRequest{To: other.Replica}, nil)
	if errs.Is(err, errs.Unavailable) {
		return &errs.Error{Kind: errs.Unavailable, Op: "relay.RequestShutdown", Message: "it does not answer", Err: err}
	}
	return errs.Wrap("relay.RequestShutdown", err)
}

// handleShutdown shuts this gateway down if the request is for it.
func (r *Relay) handleShutdown(w http.ResponseWriter, req *http.Request) {
	var asked shutdownRequest
	err := wire.DecodeJSON(http.MaxBytesReader(w, req.Body, maxShutdownRequest), 0, &asked)
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
