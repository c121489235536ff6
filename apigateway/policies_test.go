package apigateway

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/enforcer/client"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/wire"
)

func TestScalingPoliciesAreStored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = "/api/v1/groups/lobby"
	s.do("POST", "/api/v1/groups", `{"name":"lobby"}`).want(201).is("scalingCombine", "max").naming(`"scalingPolicies":[]`)
	s.do("PATCH", path, `{"scalingCombine":"chain","scalingPolicies":[
		{"name":"evening","type":"schedule","cron":"0 18 * * *","timezone":"Europe/Berlin","durationSeconds":14400,"instances":5},
		{"name":"spare","type":"cel","expression":"(players + 19) / 20"},
		{"name":"ai","type":"webhook","url":"https://scaler.example.org/lobby"}]}`).want(200).is("scalingCombine", "chain").
		naming(`{"name":"evening","type":"schedule","cron":"0 18 * * *","durationSeconds":14400,"instances":5,"timezone":"Europe/Berlin"}`).
		naming(`"timeoutSeconds":5,"intervalSeconds":30,"fallbackSeconds":300`)
	before := s.revision()
	s.do("PUT", path, s.do("GET", path, nil).want(200).raw).want(200)
	if moved := s.moved(before); len(moved) > 0 {
		t.Errorf("writing back what was read wrote %v", moved)
	}
	s.commit(store.Create(keys.Scaling("lobby"), scaling.Decision{Group: "lobby", Target: 3, From: 1, To: 3, At: time.Now(), Reason: fleet.ReasonPolicy, Message: "because", Policy: "spare"}))
	s.do("GET", path, nil).want(200).is("scaling.last.policy", "spare").is("scaling.last.reason", "Policy")
	s.do("PATCH", path+"?dryRun=true", `{"scalingPolicies":[{"name":"four","type":"cel","expression":"4"},{"name":"ai","type":"webhook","url":"https://scaler.example.org/"}]}`).want(200).
		naming("policy four asks for 4 instances now").naming("a dry run does not call its server")
	s.do("PATCH", path, `{"scalingPolicies":[],"scalingCombine":"max"}`).want(200).naming(`"scalingPolicies":[]`)
}

func TestABadScalingPolicyIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"maxInstances": 5})
	const path = "/api/v1/groups/lobby"
	before := s.revision()
	for policies, names := range map[string][]string{
		`{"type":"cel","expression":"1"}`:                                                                                {"scalingPolicies[0].name"},
		`{"name":"a b","type":"cel","expression":"1"}`:                                                                   {"scalingPolicies[0].name"},
		`{"name":"a","type":"cel","expression":"1"},{"name":"a","type":"cel","expression":"1"}`:                          {"scalingPolicies[1].name", "twice"},
		`{"name":"a","type":"oracle"}`:                                                                                   {"scalingPolicies[0].type"},
		`{"name":"a","type":"cel"}`:                                                                                      {"scalingPolicies[0].expression"},
		`{"name":"a","type":"cel","expression":"players + playrs"}`:                                                      {"scalingPolicies[0].expression", "line 1, column 11", "playrs"},
		`{"name":"a","type":"cel","expression":"tps * 2.0"}`:                                                             {"scalingPolicies[0].expression", "must give an int"},
		`{"name":"a","type":"cel","expression":"1","url":"https://example.org"}`:                                         {"scalingPolicies[0].url", "no meaning with the type cel"},
		`{"name":"a","type":"cel","expression":"1","timezone":"Mars/Olympus"}`:                                           {"scalingPolicies[0].timezone"},
		`{"name":"a","type":"cel","expression":"` + strings.Repeat("1+", 600) + `1"}`:                                    {"scalingPolicies[0].expression"},
		`{"name":"a","type":"schedule","durationSeconds":60,"instances":2}`:                                              {"scalingPolicies[0].cron"},
		`{"name":"a","type":"schedule","cron":"61 * * * *","durationSeconds":60,"instances":2}`:                          {"scalingPolicies[0].cron"},
		`{"name":"a","type":"schedule","cron":"0 4 * * *","durationSeconds":60,"instances":2,"timezone":"Mars/Olympus"}`: {"scalingPolicies[0].timezone"},
		`{"name":"a","type":"schedule","cron":"0 4 * * *","instances":2}`:                                                {"scalingPolicies[0].durationSeconds"},
		`{"name":"a","type":"schedule","cron":"0 4 * * *","durationSeconds":60}`:                                         {"scalingPolicies[0].instances"},
		`{"name":"a","type":"webhook"}`:                                                                                  {"scalingPolicies[0].url"},
		`{"name":"a","type":"webhook","url":"ftp://example.org/"}`:                                                       {"scalingPolicies[0].url"},
		`{"name":"a","type":"webhook","url":"http://127.0.0.1/"}`:                                                        {"scalingPolicies[0].url", "loopback", "network.allowedEgress"},
		`{"name":"a","type":"webhook","url":"http://169.254.169.254/"}`:                                                  {"scalingPolicies[0].url", "metadata"},
		`{"name":"a","type":"webhook","url":"https://example.org/","timeoutSeconds":31}`:                                 {"scalingPolicies[0].timeoutSeconds"},
		`{"name":"a","type":"webhook","url":"https://example.org/","intervalSeconds":1}`:                                 {"scalingPolicies[0].intervalSeconds"},
		strings.Repeat(`{"name":"a","type":"cel","expression":"1"},`, 16) + `{"name":"b","type":"cel","expression":"1"}`: {"scalingPolicies", "at most 16"},
	} {
		r := s.do("PATCH", path, `{"scalingPolicies":[`+policies+`]}`).want(422)
		for _, name := range names {
			r.naming(name)
		}
	}
	const one = `"scalingPolicies":[{"name":"a","type":"cel","expression":"1"}]`
	s.do("PATCH", path, `{"scalingCombine":"sum"}`).want(422).naming("scalingCombine")
	s.do("PATCH", path, `{"scalingMode":"STATIC",`+one+`}`).want(422).naming("scalingPolicies")
	s.do("PATCH", path, `{"static":true,`+one+`}`).want(422).naming("scalingPolicies")
	s.do("PATCH", path, `{"maxInstances":0,`+one+`}`).want(422).naming("scalingPolicies")
	s.do("PATCH", path, `{"scalingPolicies":[{"name":"a","type":"cel","formula":"1"}]}`).want(400).naming("formula")
	s.do("PATCH", path, `{"scalingPolicies":{"name":"a"}}`).want(400).naming("scalingPolicies")
	if moved := s.moved(before); len(moved) > 0 {
		t.Errorf("refused requests wrote %v", moved)
	}
}

// replays registers an enforcer that owns a group's shard and answers replays.
func (s *site) replays(group fleet.GroupName, answer client.Replay, fails *atomic.Pointer[errs.Error]) *atomic.Pointer[client.ReplayQuestion] {
	s.t.Helper()
	var question atomic.Pointer[client.ReplayQuestion]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q client.ReplayQuestion
		_ = json.NewDecoder(r.Body).Decode(&q)
		question.Store(&q)
		switch err := fails.Load(); {
		case r.Header.Get("Authorization") != "Bearer "+secret || r.URL.Path != "/v1/groups/"+string(group)+"/replay":
			wire.Encode(w, wire.Internal, "", errs.New(errs.Unauthenticated, "who are you"))
		case err != nil:
			wire.Encode(w, wire.Internal, "", err)
		default:
			_ = json.NewEncoder(w).Encode(answer)
		}
	}))
	s.t.Cleanup(server.Close)
	s.commit(
		store.Create(keys.Session("enforcer", "e1"), cluster.Session{Service: "enforcer", Replica: "e1", URL: server.URL}),
		store.Create(keys.Shard("enforcer", fleet.ShardOf(group)), cluster.Shard{Service: "enforcer", Replica: "e1"}))
	return &question
}

func TestAReplayAsksTheEnforcer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"minInstances": 1, "maxInstances": 5, "maxPlayers": 10})
	const path = "/api/v1/groups/lobby/autoscale/replay"
	s.do("POST", path, `{}`).want(503).naming("no enforcer decides about group lobby")
	var fails atomic.Pointer[errs.Error]
	answer := client.Replay{Records: 7, Then: client.ReplaySide{Up: 3, Decisions: []client.ReplayDecision{}}, Would: client.ReplaySide{Up: 1, Down: 2, Decisions: []client.ReplayDecision{}}, Answers: []client.PolicyAnswer{{Policy: "ai", Message: "no answer"}}, Notes: []string{}}
	question := s.replays("lobby", answer, &fails)
	before := s.revision()
	s.do("POST", path, `{"maxInstances":9,"scaleUpThreshold":0.5,"scalingPolicies":[{"name":"a","type":"cel","expression":"2"}]}`).want(200).
		is("group", "lobby").is("enforcer", "e1").is("records", 7).is("then.up", 3).is("would.down", 2).naming(`"instances":null,"message":"no answer"`)
	if q := question.Load(); q.Scaling.Max != 9 || q.Scaling.Min != 1 || q.Scaling.UpThreshold != 0.5 || len(q.Scaling.Policies) != 1 || q.MaxPlayers != 10 {
		t.Errorf("asked %+v", q)
	}
	for body, field := range map[string]string{
		`{"minInstances":6}`: "minInstances", `{"scaleUpThreshold":2}`: "scaleUpThreshold", `{"maxInstances":0}`: "maxInstances",
		`{"scalingPolicies":[{"name":"a","type":"cel","expression":"x"}]}`: "scalingPolicies[0].expression",
	} {
		if field == "maxInstances" {
			s.do("POST", path, body).want(409).naming(field)
			continue
		}
		s.do("POST", path, body).want(422).naming(field)
	}
	s.do("POST", path, `{"memoryMb":1}`).want(400).naming("memoryMb")
	s.do("POST", path, `{"scaleUpThreshold":"much"}`).want(400).naming("scaleUpThreshold")
	s.do("POST", "/api/v1/groups/other/autoscale/replay", `{}`).want(404)
	fails.Store(errs.New(errs.NotFound, "nothing is recorded"))
	s.do("POST", path, `{}`).want(404).naming("nothing is recorded")
	if moved := s.moved(before); len(moved) > 0 {
		t.Errorf("a replay wrote %v", moved)
	}
	s.as("").do("POST", path, `{}`).want(401)
}

func TestAReplayUsesTheInheritedMaximumOfPlayers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("base", map[string]any{"maxPlayers": 40})
	s.group("lobby", map[string]any{"parent": "base", "maxInstances": 5})
	const path = "/api/v1/groups/lobby/autoscale/replay"
	var fails atomic.Pointer[errs.Error]
	side := client.ReplaySide{Decisions: []client.ReplayDecision{}}
	question := s.replays("lobby", client.Replay{Then: side, Would: side, Answers: []client.PolicyAnswer{}, Notes: []string{}}, &fails)
	for body, want := range map[string]int{`{}`: 40, `{"maxPlayers":12}`: 12} {
		s.do("POST", path, body).want(200)
		if q := question.Load(); q.MaxPlayers != want {
			t.Errorf("%s asked for %d players, want %d", body, q.MaxPlayers, want)
		}
	}
}
