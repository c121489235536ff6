package webhook_test

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/apigateway/internal/background/notices/webhook"
	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/fleet/notice"
	"github.com/orreryhq/orrery/libs/reconcile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var crashLoop = webhook.Event{
	ID: "42-1", Type: "GROUP_CRASH_LOOP", Group: "lobby",
	Fields: map[string]any{"group": "lobby", "crashCount": 5, "message": "5 crashes: <@everyone> [x](http://evil) *now*"},
}

// received is a request as the server got it.
type received struct {
	header http.Header
	body   []byte
}

// serve returns the URL of a server and what it receives.
func serve(t *testing.T, answer http.HandlerFunc) (string, chan received) {
	t.Helper()
	got := make(chan received, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- received{r.Header, body}
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, got
}

func send(t *testing.T, policy egress.Policy, to notice.Target, f notice.Format) webhook.Result {
	t.Helper()
	s := webhook.NewSender(policy)
	defer s.Close()
	return s.Send(t.Context(), to, f, webhook.Message{Notice: "ops", Cluster: "prod", Event: crashLoop}, time.Unix(1000, 0))
}

func TestARequestIsSignedOverItsTimestampAndBody(t *testing.T) {
	const secret = "0123456789abcdef"
	url, got := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	if r := send(t, egresstest.Loopback(), notice.Target{URL: url, Secret: secret}, notice.JSON); !r.OK() || r.Status != 204 {
		t.Fatalf("%+v", r)
	}
	in := <-got
	at, err := strconv.ParseInt(in.header.Get("Orrery-Timestamp"), 10, 64)
	if err != nil || at != 1000 {
		t.Errorf("timestamp %d, %v", at, err)
	}
	if signature := in.header.Get("Orrery-Signature"); signature != webhook.Sign(secret, at, in.body) || signature == webhook.Sign(secret, at+1, in.body) || signature == webhook.Sign("other", at, in.body) {
		t.Errorf("signature %q", signature)
	}
	if id := in.header.Get("Orrery-Delivery"); id != "ops/42-1" {
		t.Errorf("delivery %q", id)
	}
	var body map[string]any
	if err := json.Unmarshal(in.body, &body); err != nil {
		t.Fatal(err)
	}
	event, _ := body["event"].(map[string]any)
	if body["id"] != "ops/42-1" || body["type"] != "GROUP_CRASH_LOOP" || body["severity"] != "critical" || body["group"] != "lobby" || body["cluster"] != "prod" || event["crashCount"] != 5.0 {
		t.Errorf("%s", in.body)
	}
	if _, has := crashLoop.Fields["type"]; has {
		t.Error("the fields of the event were changed")
	}
}

// TestASignatureIsWhatOtherToolsCompute compares with: printf '1000.{}' | openssl dgst -sha256 -hmac 0123456789abcdef.
func TestASignatureIsWhatOtherToolsCompute(t *testing.T) {
	if got := webhook.Sign("0123456789abcdef", 1000, []byte("{}")); got != "v1=bd3e8b6d13803a2406a848a68bc7a2e80b251fb9d894858564c77ce80a4aa634" {
		t.Error(got)
	}
}

func TestARequestWithoutASecretIsNotSigned(t *testing.T) {
	url, got := serve(t, func(http.ResponseWriter, *http.Request) {})
	if r := send(t, egresstest.Loopback(), notice.Target{URL: url}, notice.Slack); !r.OK() {
		t.Fatalf("%+v", r)
	}
	if in := <-got; in.header.Get("Orrery-Signature") != "" || in.header.Get("Orrery-Timestamp") != "" {
		t.Errorf("%v", in.header)
	}
}

func TestAServersTextHasNoMarkupInDiscordAndSlack(t *testing.T) {
	m := webhook.Message{Notice: "ops", Cluster: "prod", Event: crashLoop}
	discord := string(webhook.Body(notice.Discord, m))
	for _, part := range []string{`"embeds":[{`, `"allowed_mentions":{"parse":[]}`, `\\[x\\](http://evil)`, `\\*now\\*`, `"title":"prod: group crash loop"`} {
		if !strings.Contains(discord, part) {
			t.Errorf("discord lacks %s: %s", part, discord)
		}
	}
	var slack struct{ Text string }
	if err := json.Unmarshal(webhook.Body(notice.Slack, m), &slack); err != nil || !strings.Contains(slack.Text, "&lt;@everyone&gt;") || strings.Contains(slack.Text, "<") {
		t.Errorf("slack: %q, %v", slack.Text, err)
	}
}

func TestBodiesFitWhatTheServicesAccept(t *testing.T) {
	long := webhook.Event{ID: "1", Type: "INSTANCE_CRASHED", Fields: map[string]any{"instanceId": "lobby-1", "message": strings.Repeat("é*", 10000)}}
	for _, f := range []notice.Format{notice.Discord, notice.Slack} {
		if body := webhook.Body(f, webhook.Message{Cluster: strings.Repeat("x", 1000), Event: long}); len(body) > 10000 || !json.Valid(body) {
			t.Errorf("%s: %d bytes", f, len(body))
		}
	}
}

func TestEveryEventHasASentence(t *testing.T) {
	for _, c := range []struct {
		e    webhook.Event
		want string
	}{
		{webhook.Event{Type: webhook.Test}, "This is a test. Notices arrive here."},
		{webhook.Event{Type: "NODE_DISCONNECTED", Fields: map[string]any{"nodeId": "node-1", "timestamp": nil}}, "Node node-1 is not connected: its agent ended or is cut off."},
		{webhook.Event{Type: "DEPLOYMENT_COMPLETED", Fields: map[string]any{"groupName": "lobby", "revision": int64(3), "outcome": "FAILED", "message": "too many crashes"}}, "Deployment 3 of group lobby ended: FAILED: too many crashes"},
		{webhook.Event{Type: "NODE_DRAIN_COMPLETED", Fields: map[string]any{"nodeId": "node-1"}}, "The drain of node node-1 is complete."},
		{webhook.Event{Type: "INSTANCE_CRASHED", Fields: map[string]any{"instanceId": "lobby-1", "nodeId": "node-1", "causeSummary": "out of memory", "message": "exit 137"}}, "lobby-1 crashed on node-1: out of memory"},
		{webhook.Event{Type: "INSTANCE_MOVE_ENDED", Fields: map[string]any{"instanceId": "world-1", "from": "node-1", "to": "", "step": "FAILED", "message": "no node fits"}}, "The move of world-1 from node-1 could not begin: no node fits"},
		{webhook.Event{Type: "TEMPLATE_UPDATED", Fields: map[string]any{"templateName": "base", "newHash": "ab", "oldHash": nil}}, "newHash: ab, templateName: base"},
	} {
		if got := webhook.Text(c.e); got != c.want {
			t.Errorf("%s: %q", c.e.Type, got)
		}
	}
}

func TestOnlyFailuresAreUrgent(t *testing.T) {
	for _, c := range []struct {
		event, field, value string
		want                notice.Severity
	}{
		{"GROUP_CRASH_LOOP", "", "", notice.Critical},
		{"DEPLOYMENT_COMPLETED", "outcome", "COMPLETED", notice.Info},
		{"DEPLOYMENT_COMPLETED", "outcome", "FAILED", notice.Warning},
		{"INSTANCE_MOVE_ENDED", "step", "DONE", notice.Info},
		{"INSTANCE_MOVE_ENDED", "step", "CANCELED", notice.Info},
		{"INSTANCE_MOVE_ENDED", "step", "FAILED", notice.Warning},
		{"SCHEDULE_RUN_ENDED", "result", "INTERRUPTED", notice.Warning},
		{"GROUP_CREATED", "", "", notice.Info},
	} {
		if got := webhook.SeverityOf(c.event, map[string]any{c.field: c.value}); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	other, got := serve(t, func(http.ResponseWriter, *http.Request) {})
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other, http.StatusTemporaryRedirect)
	})
	r := send(t, egresstest.Loopback(), notice.Target{URL: url}, notice.JSON)
	if r.OK() || r.Status != 307 || !strings.Contains(r.Error, "redirects") || len(got) != 0 {
		t.Errorf("%+v, %d requests arrived", r, len(got))
	}
}

func TestAPrivateAddressIsRefusedAndTheErrorHasNoURL(t *testing.T) {
	url, got := serve(t, func(http.ResponseWriter, *http.Request) {})
	r := send(t, egress.Policy{}, notice.Target{URL: url + "/token"}, notice.JSON)
	if r.OK() || r.Status != 0 || !strings.Contains(r.Error, egress.Setting) || strings.Contains(r.Error, "token") || len(got) != 0 {
		t.Errorf("%+v", r)
	}
	r = send(t, egresstest.Loopback(), notice.Target{URL: "http://127.0.0.1:1/token"}, notice.JSON)
	if r.OK() || !strings.Contains(r.Error, "cannot be reached") || strings.Contains(r.Error, "token") {
		t.Errorf("%+v", r)
	}
}

func TestALongAnswerIsNotRead(t *testing.T) {
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	if r := send(t, egresstest.Loopback(), notice.Target{URL: url}, notice.JSON); !r.OK() {
		t.Errorf("%+v", r)
	}
}

func TestJudgeRetriesWhatMaySucceedLater(t *testing.T) {
	r := webhook.Retries{Attempts: 3, Backoff: reconcile.Backoff{Base: time.Second, Max: time.Minute}}
	for _, c := range []struct {
		name              string
		of                webhook.Result
		attempt, failures int
		want              webhook.Verdict
	}{
		{"success", webhook.Result{Status: 204}, 1, 0, webhook.Verdict{Done: true}},
		{"an error of the server", webhook.Result{Status: 500, Error: "x"}, 1, 1, webhook.Verdict{Wait: time.Second}},
		{"no answer", webhook.Result{Error: "x"}, 2, 2, webhook.Verdict{Wait: 2 * time.Second}},
		{"the bound", webhook.Result{Status: 503, Error: "x"}, 3, 3, webhook.Verdict{Done: true, Wait: 4 * time.Second}},
		{"a refusal", webhook.Result{Status: 404, Error: "x"}, 1, 1, webhook.Verdict{Done: true}},
		{"a redirect", webhook.Result{Status: 302, Error: "x"}, 1, 1, webhook.Verdict{Done: true}},
		{"too many requests", webhook.Result{Status: 429, RetryAfter: 7 * time.Second, Error: "x"}, 1, 1, webhook.Verdict{Wait: 7 * time.Second}},
		{"a wait beyond the bound", webhook.Result{Status: 429, RetryAfter: time.Hour, Error: "x"}, 1, 1, webhook.Verdict{Wait: time.Minute}},
	} {
		if got := r.Judge(c.of, c.attempt, c.failures, nil); got != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestJudgeAlwaysEndsAndWaitsBounded(t *testing.T) {
	r := webhook.DefaultRetries()
	rapid.Check(t, func(t *rapid.T) {
		result := webhook.Result{Status: rapid.IntRange(0, 599).Draw(t, "status"), RetryAfter: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "after"))}
		if result.Status < 200 || result.Status > 299 {
			result.Error = "failed"
		}
		attempt, failures := rapid.IntRange(1, 40).Draw(t, "attempt"), rapid.IntRange(0, 1<<20).Draw(t, "failures")
		got := r.Judge(result, attempt, failures, rand.New(rand.NewPCG(1, 2)))
		if attempt >= r.Attempts && !got.Done || got.Wait > r.Backoff.Max || got.Wait < 0 || !got.Done && got.Wait == 0 {
			t.Fatalf("%+v", got)
		}
	})
}
