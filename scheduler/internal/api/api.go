// Package api is the scheduler's HTTP interface for the gateway: questions about
// placement, and their answers. It changes nothing.
//
// Every call but /livez carries the cluster secret. Errors are in wire's Internal
// dialect, so a Kind survives the hop. Answers cost computing time, so only a few
// are given at once: who comes in excess waits a moment and is then told to come
// back (429). An answer nobody waits for any more is not finished.
package api

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/scheduler/client"
	"github.com/orreryhq/orrery/scheduler/internal/answer"
	"github.com/orreryhq/orrery/scheduler/internal/controller"
)

// Limits are the numbers behind what the interface bears.
type Limits struct {
	// Explain and Simulate are how many answers of a kind are worked on at once.
	Explain, Simulate int
	// Queue is how long others wait for their turn.
	Queue time.Duration
	// Answer bounds the work on one answer.
	Answer time.Duration
}

// DefaultLimits keep a scheduler's own work undisturbed.
func DefaultLimits() Limits {
	return Limits{Explain: 4, Simulate: 2, Queue: 500 * time.Millisecond, Answer: 10 * time.Second}
}

// Ask returns the moment a question is answered from, at a revision that is at least
// the given one if that can be had soon; see controller.Controller.
type Ask func(ctx context.Context, atLeast int64) (*controller.Moment, error)

// api answers from moments.
type api struct {
	ask                Ask
	limits             Limits
	explains, simulate chan struct{}
}

// Handler serves the interface to whoever knows the secret.
func Handler(ask Ask, secret string, l Limits) http.Handler {
	a := &api{ask: ask, limits: l, explains: make(chan struct{}, l.Explain), simulate: make(chan struct{}, l.Simulate)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/instances/{id}/explain", a.serveExplain)
	mux.HandleFunc("POST /v1/simulate", a.serveSimulate)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, errs.New(errs.NotFound, "no route %s %s", r.Method, r.URL.Path))
	})
	outer := http.NewServeMux()
	outer.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	outer.Handle("/", guard(secret, mux))
	return outer
}

// guard lets only calls through that carry the cluster secret.
func guard(secret string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || secret == "" || subtle.ConstantTimeCompare([]byte(token), []byte(secret)) != 1 {
			fail(w, errs.New(errs.Unauthenticated, "this call needs the cluster secret"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *api) serveExplain(w http.ResponseWriter, r *http.Request) {
	id := fleet.InstanceID(r.PathValue("id"))
	if !id.Valid() {
		fail(w, errs.New(errs.NotFound, "there is no such instance"))
		return
	}
	a.serve(w, r, a.explains, func(_ context.Context, m *controller.Moment) (any, error) {
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
	a.serve(w, r, a.simulate, func(ctx context.Context, m *controller.Moment) (any, error) {
		return answer.Simulate(m, q, func() bool { return ctx.Err() == nil })
	})
}

// serve works on an answer when it is its turn.
func (a *api) serve(w http.ResponseWriter, r *http.Request, turns chan struct{}, work func(context.Context, *controller.Moment) (any, error)) {
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
	_ = json.NewEncoder(w).Encode(got) // who is gone needs no answer
}

func fail(w http.ResponseWriter, err error) { wire.Encode(w, wire.Internal, "", err) }
