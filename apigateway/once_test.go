package apigateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
)

const keyed = "Idempotency-Key"

func TestAPostIsCarriedOutOnceOnWhicheverGatewayItIsSentAgain(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.group("arena", nil)
	a.node("n1", fleet.Resources{MemoryMiB: 1 << 20, CPU: 10_000})
	eventually(t, b, "GET", "/api/v1/groups/arena", 200)
	for _, c := range []struct {
		path, body, other string
		status            int
	}{
		{"/api/v1/groups", `{"name":"lobby","maxInstances":100}`, `{"name":"lobby"}`, 201},
		{"/api/v1/groups/arena/start", `{"count":2}`, `{"count":3}`, 200},
		{"/api/v1/groups/arena/scale", `{"targetInstances":5}`, `{"targetInstances":6}`, 200},
		{"/api/v1/services/arena-1/stop", ``, `{}`, 200},
		{"/api/v1/users", `{"username":"bob","password":"long enough","role":"VIEWER"}`, `{"username":"eve","password":"long enough","role":"VIEWER"}`, 201},
		{"/api/v1/roles", `{"name":"HELPER","permissions":[]}`, `{"name":"OTHER","permissions":[]}`, 201},
		{"/api/v1/networks", `{"name":"main","lobbyGroup":"arena"}`, `{"name":"other","lobbyGroup":"arena"}`, 201},
		{"/api/v1/cluster/config", `{"parentVersion":0,"patch":{"security.rateLimiting.loginsPerMinute":7}}`, `{"parentVersion":1,"patch":{}}`, 201},
		{"/api/instances", `{"configurationName":"arena"}`, `{"configurationName":"lobby"}`, 201},
	} {
		made := a.do("POST", c.path, c.body, keyed, "k").want(c.status)
		if made.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%s: what was never sent is answered as sent again", c.path)
		}
		before := a.revision()
		for _, s := range []*site{b, a} {
			again := s.do("POST", c.path, c.body, keyed, "k").want(c.status)
			if again.raw != made.raw || again.header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("%s: sent again, it is answered with\n%s\nand was with\n%s", c.path, again.raw, made.raw)
			}
			for _, name := range []string{"Location", "ETag", "Content-Type", "Orrery-Revision"} {
				if again.header.Get(name) != made.header.Get(name) {
					t.Errorf("%s: %s is %q and was %q", c.path, name, again.header.Get(name), made.header.Get(name))
				}
			}
			s.do("POST", c.path, c.other, keyed, "k").want(422).naming("Idempotency-Key")
		}
		if keys := a.moved(before); len(keys) > 0 {
			t.Errorf("%s: sent again, it moved the store: %v", c.path, keys)
		}
	}
	// Keys of other users are separate.
	eve := a.user("eve", "ADMIN")
	eve.do("POST", "/api/v1/groups/arena/start", `{"count":2}`, keyed, "k").want(200)
	// So are those of an API token, which may see less than its user.
	token, _ := eve.do("POST", "/api/v1/api-tokens", `{"name":"ci"}`).want(201).field("token").(string)
	if r := a.as(token).do("POST", "/api/v1/groups/arena/start", `{"count":2}`, keyed, "k").want(200); r.header.Get("Idempotency-Replayed") != "" {
		t.Error("an API token is told what its user was")
	}
	a.do("POST", "/api/v1/groups", `{"name":"x"}`, keyed, strings.Repeat("k", 256)).want(400).naming("Idempotency-Key")
}

func TestARequestThatChangedNothingMayBeSentAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/groups/lobby/start", nil, keyed, "k").want(404)
	s.do("POST", "/api/v1/groups", `{"name":"lobby"}`).want(201)
	before := s.revision()
	s.do("POST", "/api/v1/groups/lobby/start?dryRun=true", nil, keyed, "k").want(200)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a dry run moved the store: %v", keys)
	}
	s.do("POST", "/api/v1/groups/lobby/start", nil, keyed, "k").want(200).is("count", 1)
	s.do("POST", "/api/v1/groups/lobby/start", nil, keyed, "k").want(200).is("count", 1)
	s.do("GET", "/api/v1/services?group=lobby", nil).want(200).is("total", 1)
}

func TestAUsersKeysAreToldFromOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sent := func(who *site, key string) string {
		t.Helper()
		before := s.operations()
		who.do("POST", "/api/v1/groups", `{"name":"`+key+`","maxInstances":1}`, keyed, key).want(201)
		for name := range s.operations() {
			if !before[name] {
				owner, _, owned := strings.Cut(name, "x")
				if !owned {
					t.Fatalf("%s does not tell whose it is", name)
				}
				return owner
			}
		}
		t.Fatalf("%s is not remembered", key)
		return ""
	}
	token, _ := s.key(`{"name":"t","scopes":["groups.create"]}`)
	admin, other := sent(s, "a"), s.user("bob", "ADMIN")
	if got := sent(token, "b"); got != admin {
		t.Errorf("with a token of the same user it is %s's, and was %s's", got, admin)
	}
	if got := sent(other, "c"); got == admin {
		t.Error("another user's are not told from theirs")
	}
}

// operations returns the names of the remembered requests.
func (s *site) operations() map[string]bool {
	s.t.Helper()
	all, _, err := store.List(s.t.Context(), s.store, keys.Operations())
	if err != nil {
		s.t.Fatal(err)
	}
	names := map[string]bool{}
	for _, op := range all {
		names[op.ID] = true
	}
	return names
}

func TestTheSameRequestAtTheSameTimeIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.group("lobby", map[string]any{"maxInstances": 100})
	eventually(t, b, "GET", "/api/v1/groups/lobby", 200)
	var wg sync.WaitGroup
	answers := make(chan *reply, 10)
	for n := range 10 {
		wg.Go(func() {
			r, err := []*site{a, b}[n%2].try("POST", "/api/v1/groups/lobby/start", `{"count":3}`, keyed, "k")
			if err != nil {
				t.Error(err)
				return
			}
			answers <- r
		})
	}
	wg.Wait()
	close(answers)
	final := a.do("POST", "/api/v1/groups/lobby/start", `{"count":3}`, keyed, "k").want(200)
	for r := range answers {
		switch {
		case r.status == 200 && r.raw == final.raw:
		case r.status == 409 && strings.Contains(r.raw, "UNDER_WAY") && r.header.Get("Retry-After") == "1":
		default:
			t.Errorf("%d: %s\nwant %s", r.status, r.raw, final.raw)
		}
	}
	a.do("GET", "/api/v1/services?group=lobby", nil).want(200).is("total", 3)
}

func TestRetryDoesNotRepeatOneTimeSecret(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/api-tokens", `{"name":"ci"}`, keyed, "k").want(201)
	s.do("POST", "/api/v1/api-tokens", `{"name":"ci"}`, keyed, "k").want(409).is("error.code", "SHOWN_ONCE").naming("api-token.create")
	s.do("GET", "/api/v1/api-tokens", nil).want(200).is("total", 1)
	all, _, err := store.List(t.Context(), s.store, keys.Operations())
	if err != nil || len(all) != 1 || all[0].Answer != nil {
		t.Errorf("remembered %+v: %v", all, err)
	}
}

func TestARequestIsNotCarriedOutAgainWhereItsAnswerIsLost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/groups", `{"name":"lobby"}`, keyed, "k").want(201)
	op := s.remembered()
	if text := string(op.Answer); strings.Contains(text, "lobby") {
		t.Error("the answer can be read in the store")
	}
	for _, c := range []struct {
		at   time.Time
		code string
	}{{time.Now(), "UNDER_WAY"}, {time.Now().Add(-time.Hour), "ALREADY_DONE"}} {
		op.Answer, op.At = nil, c.at
		rev, err := s.store.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Replace(keys.Operation(op.ID), op, op.ModRev)}})
		if err != nil {
			t.Fatal(err)
		}
		op.SetRev(op.CreateRev, rev)
		r := s.do("POST", "/api/v1/groups", `{"name":"lobby"}`, keyed, "k").want(409).is("error.code", c.code)
		if c.code == "ALREADY_DONE" {
			r.naming("group.create of group lobby")
		}
	}
}

func TestFailedRequestMayReuseItsKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 1024}).Close() // its agent does not respond
	s.group("lobby", nil)
	lobby := s.inside("lobby", "node-1")
	const wrong = `{"currentPassword":"not it at all","newPassword":"another long one"}`
	for range 2 {
		s.do("POST", "/api/v1/services/"+string(lobby.id)+"/command", `{"command":"say hi"}`, keyed, "say").want(503)
		s.do("POST", "/api/v1/nodes/node-1/shutdown", `{}`, keyed, "end").want(503)
		s.do("POST", "/api/v1/auth/change-password", wrong, keyed, "change").want(401)
	}
}

func TestOfOneCommandAtTheSameTimeOneLineIsTyped(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	agent := a.node("node-1", fleet.Resources{MemoryMiB: 1024})
	a.group("lobby", nil)
	id := string(a.inside("lobby", "node-1").id)
	if _, err := b.view.WaitRev(t.Context(), a.revision()); err != nil {
		t.Fatal(err)
	}
	agent.mu.Lock() // received the line, but has not responded
	answers := make(chan *reply, 2)
	for _, s := range []*site{a, b} {
		go func() {
			r, err := s.try("POST", "/api/v1/services/"+id+"/command", `{"command":"give @a diamond"}`, keyed, "k")
			if err != nil {
				t.Error(err)
			}
			answers <- r
		}()
	}
	early := <-answers
	agent.mu.Unlock()
	made := <-answers
	if early == nil || made == nil {
		return
	}
	early.want(409).is("error.code", "UNDER_WAY")
	made.want(200)
	for _, s := range []*site{a, b} {
		if again := s.do("POST", "/api/v1/services/"+id+"/command", `{"command":"give @a diamond"}`, keyed, "k").want(200); again.raw != made.raw {
			t.Errorf("sent again, it is answered with %s and was with %s", again.raw, made.raw)
		}
	}
	agent.mu.Lock()
	defer agent.mu.Unlock()
	if len(agent.typed) != 1 {
		t.Errorf("typed %q", agent.typed)
	}
}

func TestUncertainCommandIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	agent := s.node("node-1", fleet.Resources{MemoryMiB: 1024})
	var asked atomic.Int32
	agent.mu.Lock()
	agent.more = func(http.ResponseWriter, *http.Request) { // does the work, but breaks off the response
		asked.Add(1)
		panic(http.ErrAbortHandler)
	}
	agent.mu.Unlock()
	s.do("POST", "/api/v1/nodes/node-1/shutdown", `{"reason":"the host is replaced"}`, keyed, "k").want(503)
	for range 2 {
		s.do("POST", "/api/v1/nodes/node-1/shutdown", `{"reason":"the host is replaced"}`, keyed, "k").want(409).
			is("error.code", "OUTCOME_UNKNOWN").naming("node.shutdown of node node-1: the host is replaced")
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}

	// A request that it rejected had no effect.
	agent.mu.Lock()
	agent.more = func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		wire.Encode(w, wire.Internal, "", errs.New(errs.Conflict, "this is the agent of node node-2"))
	}
	agent.mu.Unlock()
	for range 2 {
		s.do("POST", "/api/v1/nodes/node-1/shutdown", `{}`, keyed, "other").want(409).is("error.code", "CONFLICT")
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("asked %d times", n)
	}
}

func TestUncertainCommandIsNotReportedDone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var asked atomic.Int32
	agent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { // types the line, but breaks off the response
		asked.Add(1)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(agent.Close)
	s.commit(
		store.Create(keys.Node("node-1"), fleet.Node{ID: "node-1", AgentURL: agent.URL, Capacity: fleet.Resources{MemoryMiB: 1024}}),
		store.Create(keys.NodeSession("node-1"), fleet.NodeSession{Node: "node-1"}),
	)
	s.group("lobby", nil)
	lobby := s.inside("lobby", "node-1")
	for _, path := range []string{"/api/commands/execute", "/api/cluster/nodes/node-1/command", "/api/cluster/nodes/node-1"} {
		asked.Store(0)
		command := `{"command":"instance execute ` + string(lobby.id) + ` give @a diamond"}`
		s.do("POST", path, command, keyed, "k").want(200).is("success", false).naming("does not answer")
		for range 2 {
			s.do("POST", path, command, keyed, "k").want(409).naming("its outcome is unknown").naming("give @a diamond")
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("%s: asked %d times", path, n)
		}
	}
}

func TestACommandThatIsSentAgainIsAnsweredAsItWasUnlessItShowsASecret(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	other := second(t, s)
	for n, path := range []string{"/api/commands/execute", "/api/cluster/nodes/node-1/command", "/api/cluster/nodes/node-1"} {
		made := s.do("POST", path, `{"command":"instance create lobby"}`, keyed, "create").want(200).is("success", true)
		again := other.do("POST", path, `{"command":"instance create lobby"}`, keyed, "create").want(200)
		if again.raw != made.raw || again.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s: sent again, it is answered with %v %s and was with %s", path, again.header, again.raw, made.raw)
		}
		s.do("GET", "/api/v1/services?group=lobby", nil).want(200).is("total", n+1)
		key := fmt.Sprintf(`{"command":"key create k%d PUBLIC"}`, n)
		s.do("POST", path, key, keyed, "key").want(200).is("success", true)
		other.do("POST", path, key, keyed, "key").want(409).naming("api-token.create").naming("shown only once")
	}
}

// It runs alone, because the gateway waits for etcd for four seconds only.
func TestAStartThatFailsHalfWayTellsHowManyThereAre(t *testing.T) {
	etcd := storetest.Start(t)
	faulty, faults := etcd.Faulty(t)
	if _, err := faulty.Join(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	armed := false
	s := newSiteOn(t, etcd, func(cfg *Config) {
		cfg.Store = faulty
		cfg.View.Subscribe(func(b view.Batch) { // wait for the first part before the next begins
			if !armed && b.After.Instances.Len() > 0 {
				armed = true
				faults.Refuse(keys.Intents().String())
			}
		})
	})
	s.token = s.login("admin", adminPassword)
	s.group("lobby", map[string]any{"maxInstances": 100})
	many := map[string]any{"count": 50, "variables": s.largeValues("lobby")}
	made := s.do("POST", "/api/v1/groups/lobby/start", many, keyed, "k").want(200).naming("of 50 were started: ")
	n, _ := made.field("count").(float64)
	if n == 0 || n == 50 {
		t.Fatalf("%v were started", n)
	}
	if again := s.do("POST", "/api/v1/groups/lobby/start", many, keyed, "k").want(200); again.raw != made.raw {
		t.Errorf("sent again, it is answered with %s and was with %s", again.raw, made.raw)
	}
	s.do("GET", "/api/v1/services?group=lobby", nil).want(200).is("total", n)

	// If the gateway died before its response, the retry reports what it had begun.
	op := s.remembered()
	op.Answer, op.Stage, op.Details = nil, cluster.OperationBegun, "31 instances"
	for _, c := range []struct {
		at   time.Time
		code string
	}{{time.Now(), "UNDER_WAY"}, {time.Now().Add(-time.Hour), "OUTCOME_UNKNOWN"}} {
		op.At = c.at
		rev, err := s.store.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Replace(keys.Operation(op.ID), op, op.ModRev)}})
		if err != nil {
			t.Fatal(err)
		}
		op.SetRev(op.CreateRev, rev)
		r := s.do("POST", "/api/v1/groups/lobby/start", many, keyed, "k").want(409).is("error.code", c.code)
		if c.code == "OUTCOME_UNKNOWN" {
			r.naming("group.start of group lobby: 31 instances, at ")
		}
	}
}

// remembered returns the only remembered request.
func (s *site) remembered() cluster.Operation {
	s.t.Helper()
	all, _, err := store.List(s.t.Context(), s.store, keys.Operations())
	if err != nil || len(all) != 1 {
		s.t.Fatalf("remembered %+v: %v", all, err)
	}
	return all[0]
}

// lost sends a request and loses the connection when the answer begins.
func (s *site) lost(method, path, body string, header ...string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return deaf{c}, err
	}}}
	if resp, err := client.Do(req); err == nil {
		_ = resp.Body.Close()
		s.t.Fatalf("%s %s is answered with %d, and its answer was to be lost", method, path, resp.StatusCode)
	}
}

// deaf is a connection that ends when an answer begins.
type deaf struct{ net.Conn }

func (c deaf) Read(p []byte) (int, error) {
	_, _ = c.Conn.Read(p)
	_ = c.Close()
	return 0, io.ErrUnexpectedEOF
}

func TestAChangeWhoseAnswerIsLostIsNotRefusedWhenItIsSentAgain(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	const path = "/api/v1/groups/arena"
	a.group("arena", nil)
	eventually(t, b, "GET", path, 200)
	for _, c := range []struct {
		method, body       string
		status, withoutKey int
	}{
		{"PUT", `{"name":"arena","maxInstances":7}`, 200, 412},
		{"PATCH", `{"maxInstances":8}`, 200, 412},
		{"DELETE", ``, 204, 404},
	} {
		tag := a.do("GET", path, nil).want(200).header.Get("ETag")
		before := a.revision()
		a.lost(c.method, path, c.body, "If-Match", tag, keyed, c.method)
		if len(a.moved(before)) == 0 {
			t.Errorf("%s: nothing was changed", c.method)
		}
		before = a.revision()
		for _, s := range []*site{b, a} {
			again := s.do(c.method, path, c.body, "If-Match", tag, keyed, c.method).want(c.status)
			if again.header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("%s: it is carried out again", c.method)
			}
		}
		a.do(c.method, path, c.body, "If-Match", tag).want(c.withoutKey)
		if keys := a.moved(before); len(keys) > 0 {
			t.Errorf("%s: sent again, it moved the store: %v", c.method, keys)
		}
	}
}

func TestAChangeOfUnknownOutcomeIsReportedAsDoneWhenItIsSentAgain(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	faulty, faults := etcd.Faulty(t)
	if _, err := faulty.Join(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	s := newSiteOn(t, etcd, func(cfg *Config) { cfg.Store = faulty })
	s.token = s.login("admin", adminPassword)
	s.group("arena", nil)
	const path, body = "/api/v1/groups/arena", `{"name":"arena","maxInstances":7}`
	tag := s.do("GET", path, nil).want(200).header.Get("ETag")
	faults.LoseAnswer(keys.Groups().String(), true)
	s.do("PUT", path, body, "If-Match", tag, keyed, "k").want(503)
	faults.Heal()
	s.do("PUT", path, body, "If-Match", tag, keyed, "k").want(409).is("error.code", "UNDER_WAY")
	op := s.remembered()
	op.At = time.Now().Add(-time.Hour)
	s.commit(store.Replace(keys.Operation(op.ID), op, op.ModRev))
	s.do("PUT", path, body, "If-Match", tag, keyed, "k").want(409).is("error.code", "ALREADY_DONE").naming("group.update of group arena")
	s.do("GET", path, nil).want(200).is("maxInstances", 7)
}

func TestTokensOfAChangedUserAreNotStored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PATCH", "/api/v1/users/admin", `{"email":"admin@example.org"}`, keyed, "email").want(200)
	s.do("PATCH", "/api/v1/users/admin", `{"email":"admin@example.org"}`, keyed, "email").want(200)
	const body = `{"password":"battery staple"}`
	token, _ := s.do("PATCH", "/api/v1/users/admin", body, keyed, "password").want(200).field("token").(string)
	s.as(token).do("PATCH", "/api/v1/users/admin", body, keyed, "password").want(409).is("error.code", "SHOWN_ONCE").naming("user.update of user admin")
}
