package api

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/go-kit/kit/endpoint"
	httptransport "github.com/go-kit/kit/transport/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
)

// Config configures the API. All fields are required.
type Config struct {
	Instances Instances
	Content   Content
	Samples   Samples
	// Records are the agent's own log.
	Records *telemetry.Ring
	// Node is the agent's node.
	Node fleet.NodeID
	// End starts the agent's shutdown and returns at once.
	End    func(reason string)
	Secret string
}

// Handler serves the API to callers with the cluster secret.
func Handler(c Config) http.Handler {
	inner := Routes(c.Instances)
	inner.Handle("POST /v1/shutdown", Serve(shutdown(c.Node, c.End), decodeShutdown))
	inner.Handle("GET /v1/series", Serve(readNodeSeries(c.Samples), decodeSeries))
	inner.Handle("GET /v1/instances/{id}/series", Serve(readSeries(c.Samples), decodeSeries))
	inner.Handle("GET /v1/cache", Serve(readCache(c.Content), decodeAfter))
	inner.Handle("POST /v1/cache/warm", Serve(warmCache(c.Content), decodeWarm))
	inner.Handle("GET /v1/logs", Serve(readRecords(c.Records), decodeRecords))
	inner.Handle("GET /v1/logs/stream", followRecords(c.Records, c.Instances.Logs().Closed()))
	outer := http.NewServeMux()
	outer.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	outer.Handle("/", guard(c.Secret, inner))
	return outer
}

// Routes returns the API's routes without authentication, for a caller that adds its own
// authentication and routes.
func Routes(all Instances) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/instances/{id}", Serve(getInstance(all), decodeID))
	mux.Handle("GET /v1/instances/{id}/export", export(all))
	mux.Handle("GET /v1/instances/{id}/log", newReader(all))
	mux.Handle("GET /v1/instances/{id}/log/stream", follow(all))
	turns := make(chan struct{}, maxFileReaders)
	mux.Handle("GET /v1/instances/{id}/files", Serve(listFiles(all, turns), decodeFiles))
	mux.Handle("GET /v1/instances/{id}/files/content", Serve(readFile(all, turns), decodeFiles))
	mux.Handle("POST /v1/instances/{id}/console", Serve(writeLine(all), decodeConsole))
	mux.Handle("POST /v1/instances/{id}/rcon", Serve(remoteConsole(all), decodeRemote))
	mux.Handle("GET /v1/instances/{id}/measured", Serve(readMeasured(all), decodeID))
	mux.Handle("PUT /v1/instances/{id}/heartbeat", Serve(heartbeat(all), decodeHeartbeat))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		encodeError(r.Context(), errs.New(errs.NotFound, "no route %s %s", r.Method, r.URL.Path), w)
	})
	return mux
}

// Serve returns the handler of an endpoint, with the API's encoding of answers and errors.
func Serve(e endpoint.Endpoint, decode httptransport.DecodeRequestFunc) http.Handler {
	return httptransport.NewServer(e, decode, encode, httptransport.ServerErrorEncoder(encodeError))
}

// guard rejects calls without the cluster secret.
func guard(secret string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || secret == "" || subtle.ConstantTimeCompare([]byte(token), []byte(secret)) != 1 {
			encodeError(r.Context(), errs.New(errs.Unauthenticated, "this call needs the cluster secret"), w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func encodeError(_ context.Context, err error, w http.ResponseWriter) {
	wire.Encode(w, wire.Internal, "", err)
}

func encode(_ context.Context, w http.ResponseWriter, response any) error {
	if response == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	return json.NewEncoder(w).Encode(response)
}

func instanceID(r *http.Request) fleet.InstanceID { return fleet.InstanceID(r.PathValue("id")) }

func decodeID(_ context.Context, r *http.Request) (any, error) { return instanceID(r), nil }

func decodeConsole(_ context.Context, r *http.Request) (any, error) {
	var body struct {
		Line *string `json:"line"`
	}
	if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
		return nil, err
	}
	if body.Line == nil {
		return nil, errs.Field("line", "is required")
	}
	return consoleRequest{instanceID(r), *body.Line}, nil
}

func decodeRemote(_ context.Context, r *http.Request) (any, error) {
	var body client.RemoteCommand
	if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
		return nil, err
	}
	if body.Command == "" {
		return nil, errs.Field("command", "is required")
	}
	return remoteRequest{instanceID(r), body.Command}, nil
}

func decodeHeartbeat(_ context.Context, r *http.Request) (any, error) {
	h := heartbeatRequest{id: instanceID(r)}
	if err := wire.DecodeJSON(r.Body, 0, &h.Heartbeat); err != nil {
		return nil, err
	}
	switch {
	case h.Players != nil && *h.Players < 0:
		return nil, errs.Field("players", "must not be negative, is %d", *h.Players)
	case h.MaxPlayers != nil && *h.MaxPlayers < 0:
		return nil, errs.Field("maxPlayers", "must not be negative, is %d", *h.MaxPlayers)
	case h.TPS != nil && *h.TPS < 0:
		return nil, errs.Field("tps", "must not be negative, is %v", *h.TPS)
	case h.Sequence < 0:
		return nil, errs.Field("sequence", "must not be negative, is %d", h.Sequence)
	case h.Measured != nil && len(h.Measured.Figures) > driver.MaxFigures:
		return nil, errs.Field("measured", "must be at most %d bytes, has %d", driver.MaxFigures, len(h.Measured.Figures))
	case h.Joined != nil:
		return h, h.Joined.Validate()
	case h.Left != "":
		_, err := players.ParsePlayerID(string(h.Left))
		return h, err
	}
	return h, nil
}
