package api

import (
	"context"
	"encoding/json"
	"net/http"

	kithttp "github.com/go-kit/kit/transport/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/internal/content/backup"
	"github.com/orreryhq/orrery/nodeagent/internal/content/fileedit"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
)

// Config configures the API. All fields are required.
type Config struct {
	Instances Instances
	Content   Content
	Samples   Samples
	// Files changes the files of static instances.
	Files *fileedit.Editor
	// Backups keeps archives of their directories.
	Backups *backup.Keeper
	Moves   Moves
	// Records are the agent's own log.
	Records *telemetry.Ring
	// Node is the agent's node.
	Node fleet.NodeID
	// End starts the agent's shutdown and returns at once.
	End func(reason string)
	// Peers authenticates the callers.
	Peers *trust.Peers
}

// Handler serves the API to gateways, and the directories of moves to other agents.
func Handler(c Config) http.Handler {
	inner := Routes(c.Instances)
	inner.Handle("POST /v1/shutdown", shutdown(c.Node, c.End))
	inner.Handle("GET /v1/series", readNodeSeries(c.Samples))
	inner.Handle("GET /v1/instances/{id}/series", readSeries(c.Samples))
	writers := make(chan struct{}, maxFileWriters)
	inner.Handle("PUT /v1/instances/{id}/files/content", writeFile(c.Instances, c.Moves, c.Files, writers))
	inner.Handle("POST /v1/instances/{id}/files/edits", editFiles(c.Instances, c.Moves, c.Files, writers))
	inner.Handle("GET /v1/instances/{id}/files/versions", listVersions(c.Instances, c.Files))
	handleBackups(inner, c.Instances, c.Moves, c.Backups)
	inner.Handle("GET /v1/cache", readCache(c.Content))
	inner.Handle("POST /v1/cache/warm", warmCache(c.Content))
	inner.Handle("GET /v1/logs", readRecords(c.Records))
	inner.Handle("GET /v1/logs/stream", followRecords(c.Records, c.Instances.Logs().Closed()))
	outer := http.NewServeMux()
	outer.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	moves := http.NewServeMux()
	HandleMoves(moves, c.Moves)
	outer.Handle("/v1/moves/", c.Peers.Guard(moves, pki.Agent))
	outer.Handle("/", c.Peers.Guard(inner, pki.Gateway))
	return outer
}

// Routes returns the API's routes without authentication, for a caller that adds its own
// authentication and routes.
func Routes(all Instances) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/instances/{id}", getInstance(all))
	mux.Handle("GET /v1/instances/{id}/export", export(all))
	mux.Handle("GET /v1/instances/{id}/log", newReader(all))
	mux.Handle("GET /v1/instances/{id}/log/stream", follow(all))
	turns := make(chan struct{}, maxFileReaders)
	mux.Handle("GET /v1/instances/{id}/files", listFiles(all, turns))
	mux.Handle("GET /v1/instances/{id}/files/content", readFile(all, turns))
	mux.Handle("POST /v1/instances/{id}/console", writeLine(all))
	mux.Handle("POST /v1/instances/{id}/rcon", remoteConsole(all))
	mux.Handle("GET /v1/instances/{id}/measured", readMeasured(all))
	mux.Handle("PUT /v1/instances/{id}/heartbeat", heartbeat(all))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		encodeError(w, errs.New(errs.NotFound, "no route %s %s", r.Method, r.URL.Path))
	})
	return mux
}

// Serve returns the go-kit server of a call, with the API's encoding of answers and errors. A nil
// answer is sent as 204 without content.
func Serve(call func(r *http.Request) (any, error)) http.Handler {
	return kithttp.NewServer(
		func(_ context.Context, request any) (any, error) { return call(request.(*http.Request)) },
		func(_ context.Context, r *http.Request) (any, error) { return r, nil },
		func(_ context.Context, w http.ResponseWriter, answer any) error { return encode(w, answer) },
		kithttp.ServerErrorEncoder(func(_ context.Context, err error, w http.ResponseWriter) { encodeError(w, err) }),
	)
}

// serveInstance is Serve for a call about one instance, with what parse reads from the request.
func serveInstance[T any](all Instances, parse func(*http.Request) (T, error), call func(context.Context, *driver.Instance, T) (any, error)) http.Handler {
	return Serve(func(r *http.Request) (any, error) {
		v, err := parse(r)
		if err != nil {
			return nil, err
		}
		i, err := all.Instance(instanceID(r))
		if err != nil {
			return nil, err
		}
		return call(r.Context(), i, v)
	})
}

func parseNothing(*http.Request) (struct{}, error) { return struct{}{}, nil }

func encodeError(w http.ResponseWriter, err error) { wire.Encode(w, wire.Internal, "", err) }

func encode(w http.ResponseWriter, response any) error {
	if response == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	return json.NewEncoder(w).Encode(response)
}

func instanceID(r *http.Request) fleet.InstanceID { return fleet.InstanceID(r.PathValue("id")) }
