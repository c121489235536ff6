// Package api is the enforcer's HTTP API for the gateway. It answers questions about scaling and changes
// nothing.
//
// Only gateways may call it, except /livez. Errors use wire's Internal format, so that the client restores
// their Kind. One answer is computed at a time. Further calls wait briefly and then get
// status 429.
package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/enforcer/client"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/wire"
)

// queue is how long a call waits for its turn.
const queue = 2 * time.Second

// Replay answers a question about a group.
type Replay func(group fleet.GroupName, q client.ReplayQuestion) (client.Replay, error)

// Handler returns the HTTP handler of the API. peers authenticates the callers.
func Handler(replay Replay, peers *trust.Peers) http.Handler {
	turn := make(chan struct{}, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/groups/{name}/replay", func(w http.ResponseWriter, r *http.Request) {
		var q client.ReplayQuestion
		if err := wire.DecodeJSON(r.Body, 0, &q); err != nil {
			fail(w, err)
			return
		}
		timer := time.NewTimer(queue)
		defer timer.Stop()
		select {
		case turn <- struct{}{}:
		case <-r.Context().Done():
			return
		case <-timer.C:
			wire.Write(w, wire.Internal, wire.Reply{
				Status: http.StatusTooManyRequests, Code: "RATE_LIMITED", Kind: errs.Exhausted, RetryAfter: time.Second,
				Message: "the enforcer computes another replay: ask again in a moment",
			})
			return
		}
		defer func() { <-turn }()
		got, err := replay(fleet.GroupName(r.PathValue("name")), q)
		if err != nil {
			fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_ = json.NewEncoder(w).Encode(got) // an error means that the client has gone
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, errs.New(errs.NotFound, "no route %s %s", r.Method, r.URL.Path))
	})
	outer := http.NewServeMux()
	outer.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	outer.Handle("/", peers.Guard(mux, pki.Gateway))
	return outer
}

func fail(w http.ResponseWriter, err error) { wire.Encode(w, wire.Internal, "", err) }
