package apigateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// agent is a fake agent of a node.
type agent struct {
	*httptest.Server
	mu    sync.Mutex
	lines []string
	typed []string
	beats []client.Heartbeat
	// last is the highest sequence number of each instance.
	last map[string]int64
	// measured has the metrics that each instance reported.
	measured map[string]client.Measured
	// remote has the commands received over RCON.
	remote []string
	// cache has the versions that it was asked to fetch. Those in broken fail.
	cache, broken []string
	// jars are the cached artifacts.
	jars []client.CachedArtifact
	// saved is the archive of an instance's configuration.
	saved []byte
	// written has the files that were written, and edits the other changes of files.
	written map[string]string
	edits   []client.FileEdit
	// more handles all other requests; nil means 404.
	more http.HandlerFunc
	// records are its log records. The stream breaks off after them.
	records []telemetry.Record
	// asked has the queries for records.
	asked []string
}

// node registers a node with a session and a fake agent.
func (s *site) node(id fleet.NodeID, capacity fleet.Resources) *agent {
	s.t.Helper()
	a := &agent{last: map[string]int64{}, measured: map[string]client.Measured{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/instances/{id}", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(client.Instance{Players: 7, MaxPlayers: 20, PlayersKnown: true, TPS: 19.5, PID: 4242, Attach: "tmux attach", LastHeartbeat: time.Unix(1e9, 0).UTC()})
	})
	mux.HandleFunc("GET /v1/instances/{id}/log", func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscan(r.URL.Query().Get("lines"), &n)
		var out client.Log
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, l := range a.lines[max(0, len(a.lines)-n):] {
			out.Lines = append(out.Lines, client.Line{Text: l})
		}
		out.More = len(a.lines) > n
		_ = json.NewEncoder(w).Encode(out)
	})
	mux.HandleFunc("GET /v1/instances/{id}/log/stream", func(w http.ResponseWriter, _ *http.Request) { // breaks off
		_ = json.NewEncoder(w).Encode(client.Frame{})
	})
	mux.HandleFunc("POST /v1/instances/{id}/console", func(_ http.ResponseWriter, r *http.Request) {
		var l client.ConsoleLine
		_ = json.NewDecoder(r.Body).Decode(&l)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.typed = append(a.typed, l.Line)
	})
	mux.HandleFunc("GET /v1/instances/{id}/measured", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		m, ok := a.measured[r.PathValue("id")]
		if !ok {
			wire.Encode(w, wire.Internal, "", errs.New(errs.NotFound, "it told none"))
			return
		}
		_ = json.NewEncoder(w).Encode(m)
	})
	mux.HandleFunc("PUT /v1/instances/{id}/heartbeat", func(w http.ResponseWriter, r *http.Request) {
		var h client.Heartbeat
		_ = json.NewDecoder(r.Body).Decode(&h)
		a.mu.Lock()
		defer a.mu.Unlock()
		if h.Sequence != 0 && h.Sequence <= a.last[r.PathValue("id")] {
			wire.Encode(w, wire.Internal, "", errs.New(errs.AlreadyExists, "it is not higher"))
			return
		}
		a.last[r.PathValue("id")] = h.Sequence
		if h.Measured != nil {
			h.Measured.At = time.Unix(1e9, 0).UTC()
			a.measured[r.PathValue("id")] = *h.Measured
		}
		a.beats = append(a.beats, h)
	})
	mux.HandleFunc("POST /v1/instances/{id}/rcon", func(w http.ResponseWriter, r *http.Request) {
		var b client.RemoteCommand
		_ = json.NewDecoder(r.Body).Decode(&b)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.remote = append(a.remote, b.Command)
		_ = json.NewEncoder(w).Encode(client.RemoteAnswer{Answer: "you said " + b.Command, Incomplete: b.Command == "seed"})
	})
	mux.HandleFunc("GET /v1/instances/{id}/export", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if r.URL.Query().Get("prefix") == "none" {
			wire.Encode(w, wire.Internal, "", errs.New(errs.NotFound, "none does not exist in the instance's directory"))
			return
		}
		_, _ = w.Write(a.saved)
	})
	a.serveEdits(mux)
	mux.HandleFunc("GET /v1/cache", func(w http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		out := client.Cache{TotalBytes: int64(len(a.cache)), LimitBytes: 1 << 30, Artifacts: a.jars}
		for _, d := range a.cache {
			out.Versions = append(out.Versions, client.CachedVersion{Digest: d, Bytes: 1, Complete: true, UsedAt: time.Unix(1e9, 0).UTC()})
		}
		_ = json.NewEncoder(w).Encode(out)
	})
	mux.HandleFunc("POST /v1/cache/warm", func(w http.ResponseWriter, r *http.Request) {
		var q client.WarmRequest
		_ = json.NewDecoder(r.Body).Decode(&q)
		a.mu.Lock()
		defer a.mu.Unlock()
		var out client.WarmAnswer
		for _, d := range q.Digests {
			if slices.Contains(a.broken, d) {
				out.Versions = append(out.Versions, client.WarmedVersion{Digest: d, Status: client.WarmFailed, Error: "the disk is full"})
				continue
			}
			v := client.WarmedVersion{Digest: d, Status: client.WarmOK}
			if !slices.Contains(a.cache, d) {
				a.cache = append(a.cache, d)
				v.Bytes = 12
			}
			out.Versions = append(out.Versions, v)
		}
		_ = json.NewEncoder(w).Encode(out)
	})
	mux.HandleFunc("GET /v1/logs", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked = append(a.asked, r.URL.RawQuery)
		_ = json.NewEncoder(w).Encode(client.Records{Records: a.records, Size: len(a.records), Capacity: 10})
	})
	mux.HandleFunc("GET /v1/logs/stream", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked = append(a.asked, r.URL.RawQuery)
		_ = json.NewEncoder(w).Encode(client.RecordFrame{})
		_ = json.NewEncoder(w).Encode(client.RecordFrame{Records: a.records, Gap: true})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		more := a.more
		a.mu.Unlock()
		if more == nil {
			wire.Encode(w, wire.Internal, "", errs.New(errs.NotFound, "no route %s %s", r.Method, r.URL.Path))
			return
		}
		more(w, r)
	})
	a.Server = httptest.NewServer(mux)
	s.t.Cleanup(a.Close)
	s.commit(
		store.Create(keys.Node(id), fleet.Node{
			ID: id, Address: "10.0.0.1", AgentURL: a.URL, Capacity: capacity, JoinedAt: time.Now(),
			Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}},
		}),
		store.Create(keys.NodeSession(id), fleet.NodeSession{Node: id, StartedAt: time.Now()}),
	)
	return a
}

// serveEdits serves changes of files. All files have the ETag "now". The file taken exists, dynamic is
// refused, and a write of the file full finds no room.
func (a *agent) serveEdits(mux *http.ServeMux) {
	refused := func(w http.ResponseWriter, path, match string) bool {
		var err error
		switch {
		case match != "" && match != "now" && match != "*":
			err = &errs.Error{Kind: errs.Conflict, Field: client.Stale, Message: path + " has changed since you read it: read it again"}
		case path == "dynamic":
			err = errs.New(errs.Conflict, "the instance is not static")
		case path == "../x":
			err = &errs.Error{Kind: errs.Invalid, Field: "path", Message: "leads out"}
		case path == "full":
			err = errs.New(errs.Exhausted, "the disk is full")
		default:
			return false
		}
		wire.Encode(w, wire.Internal, "", err)
		return true
	}
	mux.HandleFunc("PUT /v1/instances/{id}/files/content", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		path := q.Get("path")
		if refused(w, path, strings.Trim(r.Header.Get("If-Match"), `"`)) {
			return
		}
		if path == "taken" && q.Get("only") == "true" {
			wire.Encode(w, wire.Internal, "", errs.New(errs.AlreadyExists, "taken exists already"))
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			wire.Encode(w, wire.Internal, "", errs.New(errs.Malformed, "the content did not arrive completely"))
			return
		}
		done := client.FileChange{Path: path, Size: int64(len(body)), ETag: "next", Version: "v1", Replaced: path == "server.properties"}
		if q.Get("discard") == "true" {
			done.Version = ""
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if q.Get("dryRun") != "true" {
			if a.written == nil {
				a.written = map[string]string{}
			}
			a.written[path] = string(body)
		}
		_ = json.NewEncoder(w).Encode(done)
	})
	mux.HandleFunc("POST /v1/instances/{id}/files/edits", func(w http.ResponseWriter, r *http.Request) {
		var e client.FileEdit
		_ = json.NewDecoder(r.Body).Decode(&e)
		if refused(w, e.Path, e.IfMatch) {
			return
		}
		if e.Op == client.FileRestore && e.Version != "v1" {
			wire.Encode(w, wire.Internal, "", &errs.Error{Kind: errs.NotFound, Field: "version", Message: "does not exist"})
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if !e.DryRun {
			a.edits = append(a.edits, e)
		}
		_ = json.NewEncoder(w).Encode(client.FileChange{Path: cmp.Or(e.To, e.Path, "restored"), Size: 3})
	})
	mux.HandleFunc("GET /v1/instances/{id}/files/versions", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(client.FileVersions{Versions: []client.FileVersion{{
			ID: "v1", Path: r.URL.Query().Get("path"), Size: 7, At: time.Unix(1e9, 0).UTC(), Until: time.Unix(1e9, 0).Add(24 * time.Hour).UTC(), Op: "write",
		}}})
	})
}

// loseNode ends a node's session.
func (s *site) loseNode(id fleet.NodeID) {
	s.t.Helper()
	session, err := store.Get(s.t.Context(), s.store, keys.NodeSession(id))
	if err != nil {
		s.t.Fatal(err)
	}
	s.commit(store.Remove(keys.NodeSession(id), session.ModRev))
}
