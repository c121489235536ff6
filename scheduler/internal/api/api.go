// Package api is the scheduler's HTTP API for the gateway. It answers questions about
// placement and changes nothing.
//
// Only gateways may call it, except /livez. Errors use wire's Internal format, so
// that the client restores their Kind. Answers cost computing time, so only a few are
// computed at once. Further calls wait briefly and then get status 429. When the client
// disconnects, the computation stops.
package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/scheduler/client"
	"github.com/orreryhq/orrery/scheduler/internal/answer"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
)

// Limits bound the load from questions.
type Limits struct {
	// Explain and Simulate are the numbers of answers of each kind that are computed at
	// once.
	Explain, Simulate int
	// Queue is how long further calls wait for their turn.
	Queue time.Duration
	// Answer limits the time of one answer.
	Answer time.Duration
}

// DefaultLimits returns limits that do not disturb the scheduler's own work.
func DefaultLimits() Limits {
	return Limits{Explain: 4, Simulate: 2, Queue: 500 * time.Millisecond, Answer: 10 * time.Second}
}

// Ask returns the state to answer a question from. It waits briefly for revision atLeast;
// see controller.Controller.
type Ask func(ctx context.Context, atLeast int64) (*facts.Moment, error)

// api serves answers.
type api struct {
	ask                Ask
	limits             Limits
	explains, simulate chan struct{}
}

// Handler returns the HTTP handler of the API. peers authenticates the callers.
func Handler(ask Ask, peers *trust.Peers, l Limits) http.Handler {
	a := &api{ask: ask, limits: l, explains: make(chan struct{}, l.Explain), simulate: make(chan struct{}, l.Simulate)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/instances/{id}/explain", a.serveExplain)
	mux.HandleFunc("POST /v1/simulate", a.serveSimulate)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, errs.New(errs.NotFound, "no route %s %s", r.Method, r.URL.Path))
	})
	outer := http.NewServeMux()
	outer.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	outer.Handle("/", peers.Guard(mux, pki.Gateway))
	return outer
}

func (a *api) serveExplain(w http.ResponseWriter, r *http.Request) {
	id := fleet.InstanceID(r.PathValue("id"))
	if !id.Valid() {
		fail(w, errs.New(errs.NotFound, "there is no such instance"))
		return
	}
	a.serve(w, r, a.explains, func(_ context.Context, m *facts.Moment) (any, error) {
		return answer.Explain(m, id)
	})
}

func (a *api) serveSimulate(w http.ResponseWriter, r *http.Request) {
	var q client.Question
	err := wire.DecodeJSON(r.Body, 0, &q)
	if err == nil {
		err = q.Validate()
	}
	if err != nil {
		fail(w, err)
		return
	}
	a.serve(w, r, a.simulate, func(ctx context.Context, m *facts.Moment) (any, error) {
		return answer.Simulate(m, q, func() bool { return ctx.Err() == nil })
	})
}

// serve waits for a turn, computes the answer and writes it.
func (a *api) serve(w http.ResponseWriter, r *http.Request, turns chan struct{}, work func(context.Context, *facts.Moment) (any, error)) {
	atLeast, err := strconv.ParseInt(cmp.Or(r.URL.Query().Get("atLeast"), "0"), 10, 64)
	if err != nil {
		fail(w, &errs.Error{Kind: errs.Malformed, Field: "atLeast", Message: "must be a revision"})
		return
	}
	timer := time.NewTimer(a.limits.Queue)
	defer timer.Stop()
	select {
	case turns <- struct{}{}:
	case <-r.Context().Done():
		return
	case <-timer.C:
		wire.Write(w, wire.Internal, wire.Reply{
			Status: http.StatusTooManyRequests, Code: "RATE_LIMITED", Kind: errs.Exhausted, RetryAfter: time.Second,
			Message: "the scheduler answers enough questions already: ask again in a moment",
		})
		return
	}
	defer func() { <-turns }()
	ctx, cancel := context.WithTimeout(r.Context(), a.limits.Answer)
	defer cancel()
	m, err := a.ask(ctx, atLeast)
	var got any
	if err == nil {
		got, err = work(ctx, m)
	}
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(got) // an error means that the client has gone
}

func fail(w http.ResponseWriter, err error) { wire.Encode(w, wire.Internal, "", err) }
