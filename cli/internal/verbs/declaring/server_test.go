package declaring_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/manifest"
)

// server keeps groups and schedules as the API does: with ETags, merge patches, dry runs, a history and the
// documents that were applied. New objects have the fields of testdata, which a real server sent.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	objects  map[string]map[string]any // by path
	etags    map[string]int
	applied  map[string]any // by kind/name
	history  map[string][]any
	defaults map[string]map[string]any // by kind
	revision int
	// before is called for each request that writes.
	before func(r *http.Request)
	// refuse answers a request with an error if it returns a status.
	refuse func(r *http.Request) (int, string)
	// lose cuts the connection of a request that was carried out if it returns true.
	lose func(r *http.Request) bool
	// lost has the idempotency keys of the requests whose answers were lost.
	lost map[string]bool
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{objects: map[string]map[string]any{}, etags: map[string]int{}, applied: map[string]any{}, history: map[string][]any{}, lost: map[string]bool{}, defaults: map[string]map[string]any{}}
	for _, kind := range []string{"group", "schedule"} {
		content, err := os.ReadFile(filepath.Join("testdata", kind+".json"))
		if err != nil {
			t.Fatal(err)
		}
		s.defaults[kind] = decode(content)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func decode(content []byte) map[string]any {
	var out map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(content)))
	decoder.UseNumber()
	_ = decoder.Decode(&out) // a request without a body has no fields
	return out
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if s.before != nil && r.Method != http.MethodGet {
		s.before(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		if status, message := s.refuse(r); status != 0 {
			answer(w, status, message)
			return
		}
	}
	key := r.Header.Get("Idempotency-Key")
	if s.lost[key] {
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"error":{"code":"ALREADY_DONE","message":"this was done, but the response was not stored"}}`))
		return
	}
	if s.lose != nil && s.lose(r) {
		s.lost[key] = key != ""
		w = httptest.NewRecorder()
		defer panic(http.ErrAbortHandler)
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	switch {
	case parts[0] == "applied":
		s.serveApplied(w, r, parts[1:])
	case parts[0] == "history":
		list(w, s.history[parts[1]+"/"+parts[2]])
	default:
		s.serveObject(w, r, strings.TrimSuffix(parts[0], "s"), parts[1:])
	}
}

func answer(w http.ResponseWriter, status int, message string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message, "status": status}})
}

func list(w http.ResponseWriter, data []any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data, "total": len(data)})
}

func (s *server) serveApplied(w http.ResponseWriter, r *http.Request, parts []string) {
	key := strings.Join(parts, "/")
	switch {
	case len(parts) == 0:
		var data []any
		for _, key := range slices.Sorted(maps.Keys(s.applied)) {
			if kind, name, _ := strings.Cut(key, "/"); kind == r.URL.Query().Get("kind") {
				data = append(data, map[string]any{"kind": kind, "name": name, "appliedBy": "alice", "appliedAt": "2026-01-02T03:04:05Z"})
			}
		}
		list(w, data)
	case r.Method == http.MethodPut:
		var body struct{ Document any }
		decoder := json.NewDecoder(r.Body)
		decoder.UseNumber()
		_ = decoder.Decode(&body)
		s.applied[key] = body.Document
		_ = json.NewEncoder(w).Encode(map[string]any{"document": body.Document})
	case s.applied[key] == nil:
		answer(w, http.StatusNotFound, "no document was applied for "+key)
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"document": s.applied[key]})
	}
}

func (s *server) serveObject(w http.ResponseWriter, r *http.Request, kind string, parts []string) {
	decoder := json.NewDecoder(r.Body)
	decoder.UseNumber()
	var body map[string]any
	_ = decoder.Decode(&body) // without a body it stays nil
	name := strings.Join(parts, "/")
	if r.Method == http.MethodPost {
		name = body["name"].(string)
	}
	key := kind + "/" + name
	before, exists := s.objects[key]
	switch match := r.Header.Get("If-Match"); {
	case r.Method == http.MethodGet && name == "":
		s.listObjects(w, kind)
	case r.Method == http.MethodPost && exists:
		answer(w, http.StatusConflict, "a "+kind+" named "+name+" exists")
	case r.Header.Get("If-None-Match") != "" && exists:
		answer(w, http.StatusPreconditionFailed, "it exists")
	case !exists && r.Method != http.MethodPost && r.Method != http.MethodPut:
		answer(w, http.StatusNotFound, "there is no "+kind+" "+name)
	case match != "" && match != s.etag(key):
		answer(w, http.StatusPreconditionFailed, "it has changed")
	case r.Method == http.MethodGet:
		s.send(w, key)
	default:
		s.write(w, r, key, before, body)
	}
}

func (s *server) etag(key string) string { return fmt.Sprintf("%q", fmt.Sprint(s.etags[key])) }

func (s *server) send(w http.ResponseWriter, key string) {
	w.Header().Set("ETag", s.etag(key))
	_ = json.NewEncoder(w).Encode(s.objects[key])
}

func (s *server) listObjects(w http.ResponseWriter, kind string) {
	var data []any
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(key, kind+"/") {
			data = append(data, s.objects[key])
		}
	}
	list(w, data)
}

// write performs a write or its dry run.
func (s *server) write(w http.ResponseWriter, r *http.Request, key string, before, body map[string]any) {
	kind, name, _ := strings.Cut(key, "/")
	dryRun := r.URL.Query().Get("dryRun") == "true"
	if r.Method == http.MethodDelete {
		if dryRun {
			_ = json.NewEncoder(w).Encode(map[string]any{"dryRun": true, "action": "delete", "diff": []any{}, "stop": []any{name + "-1"}})
			return
		}
		delete(s.objects, key)
		delete(s.applied, key)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	target := before
	if target == nil || r.Method == http.MethodPut {
		target = s.defaults[kind]
	}
	after := s.withDefaults(kind, manifest.ApplyPatch(target, body))
	after["name"] = name
	if platform, ok := after["platform"].(string); ok {
		after["platform"] = strings.ToUpper(platform)
	}
	diff := difference(before, after, s.defaults[kind])
	if dryRun {
		_ = json.NewEncoder(w).Encode(map[string]any{"dryRun": true, "action": "update", "diff": diff})
		return
	}
	s.store(key, before, after, diff, "admin", kind+".update")
	s.send(w, key)
}

// withDefaults gives fields that a patch removed their defaults.
func (s *server) withDefaults(kind string, object map[string]any) map[string]any {
	for field, value := range s.defaults[kind] {
		if _, ok := object[field]; !ok {
			object[field] = value
		}
	}
	return object
}

// store stores an object, unless nothing changed.
func (s *server) store(key string, before, after map[string]any, diff []any, by, action string) {
	if before != nil && len(diff) == 0 {
		return
	}
	s.revision++
	s.objects[key], s.etags[key] = after, s.revision
	entry := map[string]any{"by": by, "action": action, "at": "2026-01-02T03:04:05Z", "diff": diff}
	s.history[key] = append([]any{entry}, s.history[key]...)
}

// change is what another writer does to an object.
func (s *server) change(key, by, action, fields string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.objects[key]
	after := manifest.ApplyPatch(before, decode([]byte(fields)))
	s.store(key, before, after, difference(before, after, nil), by, action)
}

// difference returns the top fields that differ, compared with defaults for a new object.
func difference(before, after, defaults map[string]any) []any {
	if before == nil {
		before = defaults
	}
	diff := []any{}
	for _, field := range slices.Sorted(maps.Keys(after)) {
		if field != "name" && !manifest.Equal(before[field], after[field]) {
			diff = append(diff, map[string]any{"field": field, "from": before[field], "to": after[field]})
		}
	}
	return diff
}
