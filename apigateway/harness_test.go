package apigateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
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
	if s.gateway.certificates != nil {
		s.url = "https://" + s.gateway.Addr()
	}
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
// gateway and templatesvc: audit entries for reads, expired tickets, finished transfers, claims of
// shards, and published templates. It also omits the content of rejected edits, whose lease expires.
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
		return read || byTemplates || strings.HasPrefix(key, keys.AllShards().String())
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
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: s.gateway.ClientTLS()},
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

// group creates a group; fields may be nil.
func (s *site) group(name string, fields map[string]any) *reply {
	s.t.Helper()
	body := map[string]any{"name": name}
	for k, v := range fields {
		body[k] = v
	}
	return s.do("POST", "/api/v1/groups", body).want(201)
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
