// Package api serves the endpoints over HTTP to agents and gateways. Every call needs the
// cluster secret. Errors use the internal format of package wire, so that clients get their
// Kind.
package api

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	kithttp "github.com/go-kit/kit/transport/http"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/api/endpoint"
	"github.com/orreryhq/orrery/templatesvc/internal/edit/editor"
)

// NewHandler serves the endpoints under /v1, and /livez without the secret. requests counts
// calls by route; may be nil.
func NewHandler(set endpoint.Set, trees endpoint.Trees, edits endpoint.Edits, secret string, requests *prometheus.CounterVec) http.Handler {
	opts := []kithttp.ServerOption{
		kithttp.ServerErrorEncoder(writeError),
		kithttp.ServerBefore(keepRequest),
	}
	mux := http.NewServeMux()
	mux.Handle("GET /v1/manifests/{digest}", kithttp.NewServer(set.Manifest, pathValue("digest"), writeJSONBytes, opts...))
	mux.Handle("GET /v1/blobs/{sum}", kithttp.NewServer(set.Blob, pathValue("sum"), writeBlob, opts...))
	mux.Handle("GET /v1/blobs", kithttp.NewServer(set.Row, readSums, writeRow, opts...))
	mux.Handle("GET /v1/held/blobs/{sum}", kithttp.NewServer(set.Held.Held, pathValue("sum"), writeBlob, opts...))
	mux.Handle("GET /v1/held/recipes/{sum}", kithttp.NewServer(set.Held.Recipe, pathValue("sum"), writeJSON, opts...))
	mux.Handle("POST /v1/blobs/{sum}/suspect", kithttp.NewServer(set.Suspect, pathValue("sum"), writeJSON, opts...))
	mux.Handle("POST /v1/templates/{group}/{name}/rollback", kithttp.NewServer(set.Rollback, readRollback, writeJSON, opts...))
	mountTrees(mux, trees, opts)
	mountEdits(mux, edits, opts)
	mux.Handle("POST /v1/replicate", kithttp.NewServer(set.Replicate, queryValue("digest"), writeJSON, opts...))
	mux.Handle("POST /v1/collect", kithttp.NewServer(set.Collect, kithttp.NopRequestDecoder, writeJSON, opts...))
	mountManagement(mux, set.Management, opts)
	mountArtifacts(mux, set.Artifacts, opts)
	outer := http.NewServeMux()
	outer.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	outer.Handle("/", authenticate(count(mux, requests), secret))
	return outer
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
	if requests == nil {
		return mux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, route := mux.Handler(r)
		requests.WithLabelValues(route).Inc()
		mux.ServeHTTP(w, r)
	})
}

// authenticate refuses requests without the cluster secret.
func authenticate(next http.Handler, secret string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || subtle.ConstantTimeCompare([]byte(token), []byte(secret)) != 1 {
			wire.Encode(w, wire.Internal, "", errs.New(errs.Unauthenticated, "the cluster secret is missing or wrong"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func pathValue(name string) kithttp.DecodeRequestFunc {
	return func(_ context.Context, r *http.Request) (any, error) { return r.PathValue(name), nil }
}

func queryValue(name string) kithttp.DecodeRequestFunc {
	return func(_ context.Context, r *http.Request) (any, error) { return r.URL.Query().Get(name), nil }
}

func readRollback(_ context.Context, r *http.Request) (any, error) {
	var body client.RollbackRequest
	if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
		return nil, err
	}
	asked, err := askedOf(r)
	return endpoint.RollbackRequest{Ref: refOf(r), Digest: body.Digest, Asked: asked}, err
}

func writeJSON(_ context.Context, w http.ResponseWriter, response any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(response)
}

func writeJSONBytes(_ context.Context, w http.ResponseWriter, response any) error {
	body, _ := response.([]byte)
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(body)
	return err
}
