// Package api serves the API of the template service over HTTP to agents and gateways.
// Agents may only read content and report it as damaged, replicas of this service also replicate. Errors use the internal format of package wire, so
// that clients get their Kind.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	kithttp "github.com/go-kit/kit/transport/http"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/artifacts"
	"github.com/orreryhq/orrery/templatesvc/internal/edit/editor"
	"github.com/orreryhq/orrery/templatesvc/internal/store/gc"
	"github.com/orreryhq/orrery/templatesvc/internal/store/replication"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// Server performs the calls. All fields are required.
type Server struct {
	Versions  *versions.Service
	Keeper    *gc.Keeper
	Mirror    *replication.Mirror
	Artifacts *artifacts.Store
	Reader    *editor.Reader
	Writer    *editor.Writer
	// Peers authenticates the callers.
	Peers *trust.Peers
	// Requests counts calls by route.
	Requests *prometheus.CounterVec
}

// endpoint performs a call and returns a function that writes its result.
type endpoint func(*http.Request) (result, error)

// result writes the result of a call.
type result func(http.ResponseWriter) error

// Handler serves the API under /v1, and /livez to every service.
func (s *Server) Handler() http.Handler {
	gateway, agent, replica := pki.Identity{Service: pki.Gateway}, pki.Identity{Service: pki.Agent}, pki.Identity{Service: pki.Templates}
	mux := http.NewServeMux()
	for _, part := range []struct {
		routes  map[string]endpoint
		callers []pki.Identity
	}{
		{s.content(), []pki.Identity{gateway, agent, replica}},
		{s.replicas(), []pki.Identity{replica}},
		{s.upkeep(), []pki.Identity{gateway}},
		{s.templates(), []pki.Identity{gateway}},
		{s.edits(), []pki.Identity{gateway}},
		{s.trees(), []pki.Identity{gateway}},
	} {
		for pattern, e := range part.routes {
			mux.Handle(pattern, serve(func(r *http.Request) (result, error) {
				if err := trust.Allow(r.Context(), part.callers...); err != nil {
					return nil, err
				}
				return e(r)
			}))
		}
	}
	outer := http.NewServeMux()
	outer.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	outer.Handle("/", s.Peers.Guard(count(mux, s.Requests), pki.Gateway, pki.Agent, pki.Templates))
	return outer
}

// serve returns the go-kit server of an endpoint.
func serve(e endpoint) http.Handler {
	return kithttp.NewServer(
		func(_ context.Context, request any) (any, error) { return e(request.(*http.Request)) },
		func(_ context.Context, r *http.Request) (any, error) { return r, nil },
		func(_ context.Context, w http.ResponseWriter, response any) error { return response.(result)(w) },
		kithttp.ServerErrorEncoder(writeError),
	)
}

// writeError writes an error, and marks one that every replica would return.
func writeError(_ context.Context, err error, w http.ResponseWriter) {
	if final := (editor.FinalError{}); errors.As(err, &final) {
		w.Header().Set(client.HeaderFinal, "true")
	}
	wire.Encode(w, wire.Internal, "", err)
}

// count counts calls by route.
func count(mux *http.ServeMux, requests *prometheus.CounterVec) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, route := mux.Handler(r)
		requests.WithLabelValues(route).Inc()
		mux.ServeHTTP(w, r)
	})
}

// writeJSON returns the result of a call that returned a value.
func writeJSON[T any](value T, err error) (result, error) {
	return func(w http.ResponseWriter) error {
		w.Header().Set("Content-Type", "application/json")
		return json.NewEncoder(w).Encode(value)
	}, err
}

// writeDone returns the result of a call that returned only an error.
func writeDone(err error) (result, error) { return writeJSON(struct{}{}, err) }
