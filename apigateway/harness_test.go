package apigateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	adminPassword = "correct horse battery"
	secret        = "0123456789abcdef0123456789abcdef"
)

// site is a gateway with a real store. A test adds the services behind it.
type site struct {
	t       testing.TB
	etcd    *storetest.Etcd
	store   *store.Client
	view    *view.View
	gateway *Gateway
	url     string
	// token is sent with every request; "" sends none.
	token string
	// stop shuts the gateway down.
	stop func()
	// served are all routes.
	served []server.Route
}

func newSite(t testing.TB, edit ...func(*Config)) *site {
	t.Helper()
	s := newSiteOn(t, storetest.Start(t), edit...)
	s.token = s.login("admin", adminPassword)
	return s
}

// newSiteOn starts another gateway on an etcd, without a login.
func newSiteOn(t testing.TB, etcd *storetest.Etcd, edit ...func(*Config)) *site {
	t.Helper()
	s := &site{t: t, etcd: etcd, store: etcd.Client(t)}
	if _, err := s.store.Join(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	s.view = view.New(s.store, nil)
	cfg := Config{
		Store: s.store, View: s.view, Log: slog.New(slog.DiscardHandler), Listen: "127.0.0.1:0", Replica: filepath.Base(t.TempDir()) + fmt.Sprintf("-%p", s),
		ClusterSecret: secret, AdminPassword: adminPassword, Limits: Limits{Anonymous: -1, Logins: -1},
		passwordCost: auth.Cost{MemoryKiB: 64, Passes: 1}, pinTime: await.Patience, pause: func(ctx context.Context, _ time.Duration) bool { return ctx.Err() == nil },
	}
	for _, e := range edit {
		e(&cfg)
	}
	var err error
	if s.gateway, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	s.run()
	await.That(t, "the gateway's session", func() string { // it is opened after the first requests are served
		_, open := s.view.Snapshot().Sessions.Get(serviceName + "/" + cfg.Replica)
		return await.Unless(open, "there is none")
	})
	return s
}

func (s *site) run() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var wg sync.WaitGroup
	failed := make(chan error, 1)
	wg.Go(func() { _ = s.view.Run(ctx) })
	wg.Go(func() {
		if err := s.gateway.Run(ctx); err != nil {
			failed <- err
		}
	})
	s.stop = cancel
	s.t.Cleanup(func() { cancel(); wg.Wait() })
	select {
	case <-s.gateway.Ready():
	case err := <-failed:
		s.t.Fatalf("the gateway ended: %v", err)
	case <-time.After(await.Patience):
		s.t.Fatal("the gateway does not serve")
	}
	s.url, s.served = "http://"+s.gateway.Addr(), s.gateway.frame.Routes()
}

func (s *site) login(user, password string) string {
	s.t.Helper()
	r := s.do("POST", "/api/v1/auth/login", map[string]string{"username": user, "password": password}).want(200)
	token, _ := r.field("token").(string)
	return token
}

// as returns the site with another token.
func (s *site) as(token string) *site {
	other := *s
	other.token = token
	return &other
}

// user creates a user with the admin's password and returns the site with a token of its login.
func (s *site) user(name, role string) *site {
	s.t.Helper()
	admin, err := store.Get(s.t.Context(), s.store, keys.User("admin"))
	if err != nil {
		s.t.Fatal(err)
	}
	admin.Username, admin.Role, admin.CreatedAt = name, role, time.Now()
	s.commit(store.Create(keys.User(name), admin))
	return s.as(s.login(name, adminPassword))
}

// commit writes to the store and waits until the view has the writes.
func (s *site) commit(writes ...store.Write) int64 {
	s.t.Helper()
	rev, err := s.store.Commit(s.t.Context(), store.Txn{Writes: writes})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), await.Patience)
	defer cancel()
	if _, err := s.view.WaitRev(ctx, rev); err != nil {
		s.t.Fatal(err)
	}
	return rev
}

// revision returns etcd's revision, which every write increases.
func (s *site) revision() int64 {
	s.t.Helper()
	rev, err := s.store.Revision(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return rev
}

// moved returns the keys that requests have written since a revision. It omits background writes of the
// gateway and templatesvc: audit entries for reads, expired tickets, finished transfers, and published
// templates. It also omits the content of rejected edits, whose lease expires.
func (s *site) moved(since int64) []string {
	s.t.Helper()
	now := s.revision()
	if now == since {
		return nil
	}
	var w written
	if err := s.store.History(s.t.Context(), keys.Root, since, now, &w); err != nil {
		s.t.Fatal(err)
	}
	seen, err := s.view.WaitRev(s.t.Context(), now)
	if err != nil {
		s.t.Fatal(err)
	}
	return slices.DeleteFunc(w, func(key string) bool {
		id, entry := strings.CutPrefix(key, keys.AuditLog().String())
		e, known := seen.Audit.Get(id)
		read := entry && known && e.Class() == account.AuditAccess
		byTemplates := strings.HasPrefix(key, keys.TemplatePublishes().String()) || strings.HasPrefix(key, keys.TemplateSourceStatuses().String())
		return read || byTemplates
	})
}

// written collects the keys of changes, except expired tickets and finished transfers.
type written []string

func (w *written) Reset([]store.KeyValue, int64) {}

func (w *written) Apply(changes []store.Change, _ int64) {
	for _, c := range changes {
		over := strings.HasPrefix(c.Key, keys.Tickets().String()) || strings.HasPrefix(c.Key, keys.Transfer("").String())
		if !c.Removed || !over {
			*w = append(*w, c.Key)
		}
	}
}

// reply is a response; body is its decoded JSON.
type reply struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	raw    string
	body   any
}

// routes returns all routes of the gateway.
func (s *site) routes() []server.Route {
	return s.served
}

// do sends a request and checks the response against the OpenAPI document. A string body is sent as it
// is, others as JSON, nil as no body.
func (s *site) do(method, path string, body any, header ...string) *reply {
	s.t.Helper()
	r, err := s.try(method, path, body, header...)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	s.described(method, path, body, r)
	return r
}

func (s *site) try(method, path string, body any, header ...string) (*reply, error) {
	var payload io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		payload = strings.NewReader(b)
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, payload)
	if err != nil {
		return nil, err
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	req.Header.Set("Accept", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	r := &reply{t: s.t, what: method + " " + path, status: resp.StatusCode, header: resp.Header}
	r.read(raw)
	return r, nil
}

// read sets the body, which may be JSON.
func (r *reply) read(raw []byte) {
	r.raw = string(raw)
	if len(raw) > 0 {
		_ = json.Unmarshal(raw, &r.body)
	}
}

// want checks the status. An error must have the error format of the path's API.
func (r *reply) want(status int) *reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%s: %d, want %d: %.600s", r.what, r.status, status, r.raw)
	}
	if status >= 400 {
		r.enveloped()
	}
	return r
}

func (r *reply) enveloped() {
	r.t.Helper()
	path := strings.SplitN(strings.SplitN(r.what, " ", 2)[1], "?", 2)[0]
	if server.DialectOf(path) == wire.Universe {
		if text, ok := r.field("error").(string); !ok || text == "" {
			r.t.Errorf("%s: not the older envelope: %s", r.what, r.raw)
		}
		return
	}
	e, _ := r.field("error").(map[string]any)
	if e["code"] == nil || e["code"] == "" || e["message"] == nil || e["message"] == "" || e["status"] != float64(r.status) {
		r.t.Errorf("%s: not the envelope of %d: %s", r.what, r.status, r.raw)
	}
	if r.header.Get("X-Request-Id") == "" {
		r.t.Errorf("%s: no X-Request-Id", r.what)
	}
}

// naming checks that the response contains a text.
func (r *reply) naming(text string) *reply {
	r.t.Helper()
	if !strings.Contains(r.raw, text) {
		r.t.Errorf("%s: %q is not named in %s", r.what, text, r.raw)
	}
	return r
}

// field returns the part of the body at a dotted path. List items are numbers.
func (r *reply) field(path string) any {
	at := r.body
	for part := range strings.SplitSeq(path, ".") {
		switch in := at.(type) {
		case map[string]any:
			at = in[part]
		case []any:
			n, err := strconv.Atoi(part)
			if err != nil || n >= len(in) {
				return nil
			}
			at = in[n]
		default:
			return nil
		}
	}
	return at
}

// is checks the value of a field. Numbers are float64.
func (r *reply) is(path string, want any) *reply {
	r.t.Helper()
	got, _ := json.Marshal(r.field(path))
	wanted, _ := json.Marshal(want)
	if string(got) != string(wanted) {
		r.t.Errorf("%s: %s = %s, want %s", r.what, path, got, wanted)
	}
	return r
}

func (r *reply) data() []any {
	list, _ := r.field("data").([]any)
	return list
}

// group creates a group; fields may be nil.
func (s *site) group(name string, fields map[string]any) *reply {
	s.t.Helper()
	body := map[string]any{"name": name}
	for k, v := range fields {
		body[k] = v
	}
	return s.do("POST", "/api/v1/groups", body).want(201)
}

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
			wire.Encode(w, wire.Internal, "", errs.New(errs.NotFound, "the instance has no none"))
			return
		}
		_, _ = w.Write(a.saved)
	})
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

// loseNode ends a node's session.
func (s *site) loseNode(id fleet.NodeID) {
	s.t.Helper()
	session, err := store.Get(s.t.Context(), s.store, keys.NodeSession(id))
	if err != nil {
		s.t.Fatal(err)
	}
	s.commit(store.Remove(keys.NodeSession(id), session.ModRev))
}

// start starts an instance of a group and returns its ID.
func (s *site) start(group string) fleet.InstanceID {
	s.t.Helper()
	r := s.do("POST", "/api/v1/groups/"+group+"/start", nil).want(200)
	list, _ := r.field("instances").([]any)
	if len(list) != 1 {
		s.t.Fatalf("started %s", r.raw)
	}
	m, _ := list[0].(map[string]any)
	uid, _ := m["uid"].(string)
	return fleet.InstanceID(uid)
}

// hold places a running instance with its resources on a node.
func (s *site) hold(id fleet.InstanceID, node fleet.NodeID, takes fleet.Resources) {
	s.t.Helper()
	s.status(id, node, fleet.Status{State: fleet.Online})
	i, _ := s.view.Snapshot().Instances.Get(id)
	p := *i.Placement
	p.Resources = takes
	s.commit(store.Replace(keys.Placement(node, id), p, p.ModRev))
}

// status places an instance on a node and reports a state, as the scheduler and agent do.
func (s *site) status(id fleet.InstanceID, node fleet.NodeID, st fleet.Status) {
	s.t.Helper()
	i, ok := s.view.Snapshot().Instances.Get(id)
	if !ok {
		s.t.Fatalf("no instance %s", id)
	}
	var writes []store.Write
	if i.Placement == nil || i.Placement.Generation < i.Intent.Generation {
		p := fleet.Placement{Instance: id, Name: i.Intent.Name, Group: i.Intent.Group, Node: node, Generation: i.Intent.Generation, Port: 30000, Plan: i.Intent.Plan}
		var rev int64
		if i.Placement != nil {
			rev = i.Placement.ModRev
		}
		writes = append(writes, store.Replace(keys.Placement(node, id), p, rev))
	}
	st.Instance, st.Group, st.Node, st.Generation, st.ChangedAt = id, i.Intent.Group, node, i.Intent.Generation, time.Now()
	var rev int64
	if i.Status != nil {
		rev = i.Status.ModRev
	}
	s.commit(append(writes, store.Replace(keys.Status(id), st, rev))...)
}

// template publishes a template.
func (s *site) template(ref string) {
	s.t.Helper()
	s.templateFrom("", ref)
}

// templateFrom publishes a template of a source.
func (s *site) templateFrom(origin, ref string) {
	s.t.Helper()
	r := content.ParseTemplateRef(ref)
	s.commit(
		store.Create(keys.TemplateHead(r), content.TemplateHead{TemplateRef: r, Origin: origin, Digest: "d1", SizeBytes: 12, Files: 1, UpdatedAt: time.Now()}),
		store.Create(keys.TemplateVersion(r, "d1"), content.TemplateVersion{TemplateRef: r, Digest: "d1", SizeBytes: 12, Files: 1, CreatedAt: time.Now()}),
	)
}
