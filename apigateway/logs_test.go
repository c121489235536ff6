package apigateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/apigateway/internal/stream/logs"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// logging makes a gateway log, and keep n records.
func logging(n int) func(*Config) {
	return func(c *Config) {
		c.Records = telemetry.NewRing("apigateway/"+c.Replica, n)
		c.Log = slog.New(c.Records.Handler(slog.NewTextHandler(io.Discard, nil)))
	}
}

// messages returns the messages of a response's records without the gateway's own.
func (r *reply) messages() (out []string) {
	list, _ := r.field("records").([]any)
	for _, rec := range list {
		m, _ := rec.(map[string]any)
		if text := fmt.Sprint(m["message"]); strings.HasPrefix(text, "test ") {
			out = append(out, text)
		}
	}
	return out
}

func TestTheLogsOfAllGatewaysAreOneList(t *testing.T) {
	t.Parallel()
	a := newSite(t, logging(0))
	b := newSiteOn(t, a.etcd, logging(0)).as(a.token)
	for _, s := range []*site{a, b} {
		await.That(t, "both gateways are known", func() string {
			n := len(s.view.Snapshot().ServiceSessions("apigateway"))
			return await.Unless(n == 2, "%d are", n)
		})
	}
	later := func() { // numbers are microseconds
		for now := time.Now().UnixMicro(); time.Now().UnixMicro() == now; {
		}
	}
	for n := range 3 {
		a.gateway.cfg.Log.Info(fmt.Sprint("test a", n), "n", n, "error", errors.New("it broke"))
		later()
		b.gateway.cfg.Log.Warn(fmt.Sprint("test b", n))
		later()
	}
	want := []string{"test a0", "test b0", "test a1", "test b1", "test a2", "test b2"}
	for _, s := range []*site{a, b} {
		r := s.do("GET", "/api/v1/system/logs?logger=apigateway", nil).want(200).is("missing", []string{}).is("level", "").is("logger", "apigateway").is("capacity", 2*telemetry.DefaultKept)
		if got := r.messages(); !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
		if replicas, _ := r.field("replicas").([]any); len(replicas) != 2 || replicas[0] != s.gateway.cfg.Replica {
			t.Errorf("of %v", replicas)
		}
	}
	r := a.do("GET", "/api/v1/system/logs?level=warn", nil).want(200).is("level", "WARN")
	if got := r.messages(); !slices.Equal(got, []string{"test b0", "test b1", "test b2"}) {
		t.Errorf("warnings: %v", got)
	}
	if list, _ := a.do("GET", "/api/v1/system/logs?limit=2", nil).want(200).field("records").([]any); len(list) != 2 {
		t.Errorf("two are %v", list)
	}
	r = a.do("GET", "/api/v1/system/logs?replica="+a.gateway.cfg.Replica, nil).want(200)
	if got := r.messages(); !slices.Equal(got, []string{"test a0", "test a1", "test a2"}) {
		t.Errorf("its own: %v", got)
	}
	var body struct{ Records []map[string]any }
	if err := json.Unmarshal([]byte(r.raw), &body); err != nil {
		t.Fatal(err)
	}
	last := body.Records[len(body.Records)-1]
	if strings.Contains(r.raw, "e+") || last["throwable"] != "it broke" || last["thread"] != "apigateway/"+a.gateway.cfg.Replica || fmt.Sprint(last["mdc"]) != "map[n:2]" {
		t.Errorf("%v", last)
	}
	a.do("GET", "/api/v1/system/logs?replica=another", nil).want(404)
	for _, query := range []string{"level=loud", "limit=-1", "limit=x"} {
		a.do("GET", "/api/v1/system/logs?"+query, nil).want(400)
	}
	a.user("vera", "VIEWER").do("GET", "/api/v1/system/logs", nil).want(403)
}

func TestAGatewayThatDoesNotAnswerIsNamedWithTheReason(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) {
		c.Records = telemetry.NewRing("apigateway/"+c.Replica, 0)
		c.Log = slog.New(c.Records.Handler(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug})))
	})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	var missing []string
	reasons := map[string]any{}
	for _, other := range [][3]string{
		{"elsewhere", s.url, "its api-url leads to gateway " + s.gateway.cfg.Replica + ": each gateway needs an api-url of its own"},
		{"gone", "http://127.0.0.1:1", "it cannot be reached at its api-url: check that it runs and that gateways can reach each other"},
		{"older", s.url + "/api/v1/none", "the service at its api-url does not recognize this gateway: all gateways need the same version and the same cluster secret"},
		{"silent", silent.URL, "it did not answer within 3s: check its host"},
	} {
		missing = append(missing, other[0])
		reasons[other[0]] = other[2]
		s.commit(store.Create(keys.Session("apigateway", other[0]), cluster.Session{Service: "apigateway", Replica: other[0], URL: other[1]}))
	}
	await.That(t, "the reasons", func() string {
		r := s.do("GET", "/api/v1/system/logs", nil).want(200).is("missing", missing).is("replicas", []string{s.gateway.cfg.Replica})
		return cmp.Diff(any(reasons), r.field("missingReasons"))
	})
	told := s.gateway.cfg.Records.Last(telemetry.RecordFilter{Logger: "apigateway/internal/stream/logs"}, 100)
	if !slices.ContainsFunc(told, func(r telemetry.Record) bool {
		return r.Level == "DEBUG" && r.MDC["replica"] == "gone" && r.MDC["url"] == "http://127.0.0.1:1" && strings.Contains(r.Throwable, "refused")
	}) {
		t.Errorf("the log says %+v", told)
	}
}

func TestLogRecordsNeedClusterSecret(t *testing.T) {
	t.Parallel()
	a := newSite(t, logging(0))
	b := newSiteOn(t, a.etcd, logging(0), func(c *Config) {
		c.AllowedSubnets, c.BehindProxy = []string{"10.0.0.0/8"}, []string{"127.0.0.0/8"}
	}).as(a.token)
	await.That(t, "both gateways are known", func() string {
		n := len(a.view.Snapshot().ServiceSessions("apigateway"))
		return await.Unless(n == 2, "%d are", n)
	})
	b.gateway.cfg.Log.Info("test of b")
	stranger := []string{"X-Forwarded-For", "192.0.2.1"}
	b.do("GET", "/api/v1/system/logs", nil, stranger...).want(403)
	await.That(t, "the records of the other", func() string {
		r := a.do("GET", "/api/v1/system/logs", nil, "Authorization", "bearer "+a.token).want(200)
		return await.Unless(slices.Equal(r.messages(), []string{"test of b"}), "%v, %v", r.messages(), r.field("missingReasons"))
	})
	ask := func(by *site, method, query string, header ...string) *reply {
		t.Helper()
		r, err := by.try(method, logs.Path+"?"+query, nil, header...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	own := "replica=" + a.gateway.cfg.Replica
	ask(a, "GET", own+"&limit=1").want(404)
	ask(a.as(""), "GET", own+"&limit=1").want(404)
	ask(b.as(secret), "GET", "replica="+b.gateway.cfg.Replica+"&limit=1", stranger...).want(200)
	gateway := a.as(secret)
	ask(gateway, "POST", own+"&limit=1").want(404)
	for query, status := range map[string]int{
		own + "&limit=1": 200, own + "&limit=-1": 200, own + "&limit=": 400, own + "&limit=1&level=loud": 400, "replica=another&limit=1": 409, "": 409,
	} {
		if r := ask(gateway, "GET", query); r.status != status || strings.Contains(r.raw, "records") != (status == 200) {
			t.Errorf("%s: %d %s", query, r.status, r.raw)
		}
	}
}

// frames returns the events of a stream as ID, name and data.
func frames(said *await.Text) (out [][3]string) {
	for _, text := range strings.Split(said.String(), "\n\n") {
		var f [3]string
		for line := range strings.Lines(text) {
			for n, field := range []string{"id: ", "event: ", "data: "} {
				if v, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), field); ok {
					f[n] = v
				}
			}
		}
		if f[1] != "" {
			out = append(out, f)
		}
	}
	return out
}

// logged returns the messages of a stream of records, with "gap" for gaps.
func logged(said *await.Text) (out []string) {
	for _, f := range frames(said) {
		var rec telemetry.Record
		_ = json.Unmarshal([]byte(f[2]), &rec)
		switch {
		case f[1] == "gap":
			out = append(out, "gap")
		case f[1] == "log" && strings.HasPrefix(rec.Message, "test ") && fmt.Sprint(rec.Seq) == f[0]:
			out = append(out, rec.Message)
		}
	}
	return out
}

func awaitLogged(t *testing.T, said *await.Text, want ...string) {
	t.Helper()
	await.That(t, "the records", func() string {
		got := logged(said)
		return await.Unless(slices.Equal(got, want), "%v", got)
	})
}

func TestALogIsFollowedFromItsTailAndResumed(t *testing.T) {
	t.Parallel()
	s := newSite(t, logging(50))
	log := s.gateway.cfg.Log
	log.Info("test 1")
	log.Info("test 2")
	said := s.stream("/api/v1/system/logs/stream?tail=1")
	log.Info("test 3")
	awaitLogged(t, said, "test 2", "test 3")
	if first := frames(said)[0]; first[1] != "connected" || !strings.Contains(first[2], s.gateway.cfg.Replica) {
		t.Errorf("the first event is %v", first)
	}
	none := s.stream("/api/v1/system/logs/stream?tail=0")
	log.Warn("test 4")
	awaitLogged(t, none, "test 4")
	all := frames(said)
	id := all[1][0] // of test 2
	awaitLogged(t, s.stream("/api/v1/system/logs/stream?lastEventId="+id), "test 3", "test 4")
	awaitLogged(t, s.stream("/api/v1/system/logs/stream?level=WARN&lastEventId="+id), "test 4")
	for n := range 60 {
		log.Info(fmt.Sprint("test later ", n))
	}
	said = s.stream("/api/v1/system/logs/stream?lastEventId=" + id)
	await.That(t, "a gap, and what is kept", func() string {
		got := logged(said)
		return await.Unless(len(got) > 1 && got[0] == "gap" && got[1] != "test 3" && got[len(got)-1] == "test later 59", "%v", got)
	})
	s.do("GET", "/api/v1/system/logs/stream?lastEventId=x", nil).want(400)
	s.do("GET", "/api/v1/system/logs/stream?tail=-1", nil).want(400)
	s.user("vera", "VIEWER").do("GET", "/api/v1/system/logs/stream", nil).want(403)
}

func TestATicketForALogIsGoodOnceAndForThatLog(t *testing.T) {
	t.Parallel()
	s := newSite(t, logging(0))
	anonymous := s.as("")
	ticket := func(path string) string { return fmt.Sprint(s.do("POST", path, nil).want(200).field("ticket")) }
	mine := ticket("/api/v1/system/logs/ticket")
	s.gateway.cfg.Log.Info("test 1")
	awaitLogged(t, anonymous.stream("/api/v1/system/logs/stream?ticket="+mine), "test 1")
	for _, bad := range []string{mine, ticket("/api/v1/events/ticket"), "x"} {
		anonymous.do("GET", "/api/v1/system/logs/stream?ticket="+bad, nil).want(401)
	}
	anonymous.do("GET", "/api/v1/events/stream?ticket="+ticket("/api/v1/system/logs/ticket"), nil).want(401)
	s.user("vera", "VIEWER").do("POST", "/api/v1/system/logs/ticket", nil).want(403)
}

func TestLogStreamEndsWhenPermissionIsLost(t *testing.T) {
	t.Parallel()
	s := newSite(t, logging(0))
	s.do("POST", "/api/v1/roles", `{"name":"READER","permissions":["system.logs.view"]}`).want(201)
	reader := s.user("rita", "READER")
	said := reader.stream("/api/v1/system/logs/stream")
	s.do("PATCH", "/api/v1/users/rita", `{"role":"VIEWER"}`).want(200)
	await.That(t, "it is cut", func() string {
		text := said.String()
		return await.Unless(strings.Contains(text, "cut off: ") && strings.Contains(text, "ended: "), "%s", text)
	})
}

func TestATokenThatIsLoggedForTheOperatorIsNotReadOverTheAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t, logging(0), func(c *Config) { c.Reset.Log = true })
	s.do("PATCH", "/api/v1/users/admin", `{"email":"admin@example.org"}`).want(200)
	s.as("").do("POST", "/api/v1/auth/password-reset/request", `{"email":"admin@example.org"}`).want(http.StatusAccepted)
	var r *reply
	await.That(t, "it is logged", func() string {
		r = s.do("GET", "/api/v1/system/logs?level=WARN", nil).want(200)
		return await.Unless(strings.Contains(r.raw, "asked to reset a password"), "%s", r.raw)
	})
	if !strings.Contains(r.raw, `"token":"***"`) {
		t.Error(r.raw)
	}
}

func TestNodeLogsWorkOnAnyGateway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	node := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.do("GET", "/api/v1/nodes/node-1/logs", nil).want(200).is("records", []string{}).is("nodeId", "node-1")
	node.records = []telemetry.Record{{Seq: 41, TS: 1, Level: "WARN", Logger: "nodeagent", Thread: "nodeagent/node-1", Message: "test 1"}}
	r := s.do("GET", "/api/v1/nodes/node-1/logs?level=warn&logger=node&limit=5000", nil).want(200)
	r.is("records.0.seq", 41).is("size", 1).is("capacity", 10).is("level", "WARN").is("logger", "node")
	anonymous := s.as("")
	ticket := func(id string) string {
		return fmt.Sprint(s.do("POST", "/api/v1/nodes/"+id+"/logs/ticket", nil).want(200).field("ticket"))
	}
	said := anonymous.stream("/api/v1/nodes/node-1/logs/stream?level=WARN&lastEventId=40&tail=7&ticket=" + ticket("node-1"))
	awaitLogged(t, said, "gap", "test 1")
	await.That(t, "it is told that the agent has gone", func() string {
		text := said.String()
		return await.Unless(strings.Contains(text, "event: error") && strings.Contains(text, "ended: "), "%s", text)
	})
	node.mu.Lock()
	asked := node.asked[1:]
	node.mu.Unlock()
	if want := []string{"level=WARN&limit=1000&logger=node", "after=40&level=WARN&limit=7&logger="}; !slices.Equal(asked, want) {
		t.Errorf("asked for %v", asked)
	}
	s.node("node-2", fleet.Resources{MemoryMiB: 4096})
	system := fmt.Sprint(s.do("POST", "/api/v1/system/logs/ticket", nil).want(200).field("ticket"))
	for _, foreign := range []string{ticket("node-2"), system, ""} {
		anonymous.do("GET", "/api/v1/nodes/node-1/logs/stream?ticket="+foreign, nil).want(401)
	}
	anonymous.do("GET", "/api/v1/nodes/nowhere/logs/stream?ticket=x", nil).want(401)
	s.loseNode("node-2")
	s.do("GET", "/api/v1/nodes/node-2/logs", nil).want(503)
	s.do("GET", "/api/v1/nodes/node-2/logs/stream", nil).want(503)
	s.do("GET", "/api/v1/nodes/nowhere/logs", nil).want(404)
	s.do("GET", "/api/v1/nodes/nowhere/logs/stream", nil).want(404)
	s.do("POST", "/api/v1/nodes/nowhere/logs/ticket", nil).want(404)
	s.user("otto", "OPERATOR").do("GET", "/api/v1/nodes/node-1/logs", nil).want(403)
}
