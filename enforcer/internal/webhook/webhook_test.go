package webhook

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a client whose time the test sets.
type rig struct {
	*Client
	calls, answers chan struct{}

	mu  sync.Mutex
	now time.Time
}

func newRig(t *testing.T, allowed bool) *rig {
	r := &rig{now: time.Unix(1000, 0), calls: make(chan struct{}, 100), answers: make(chan struct{}, 100)}
	r.Client = New(Config{
		Egress: egress.Policy{Operator: allowed}, Log: slog.New(slog.DiscardHandler),
		Now:      func() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.now },
		Answered: func(fleet.GroupName) { r.answers <- struct{}{} }, Called: func(bool) { r.calls <- struct{}{} },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

func (r *rig) later(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func hook(url string) scalepolicy.Policy {
	return scalepolicy.Policy{Name: "ai", Type: scalepolicy.Webhook, URL: url, TimeoutSeconds: 1, IntervalSeconds: 30, FallbackSeconds: 60}
}

// call makes the calls that are due and waits for one of them.
func (r *rig) call(p scalepolicy.Policy) {
	r.Call("lobby", []scalepolicy.Policy{p}, scaling.Metrics{Players: 7})
	<-r.calls
}

func TestTheLastAnswerAppliesForABoundedTime(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var q question
		if err := json.NewDecoder(req.Body).Decode(&q); err != nil || q.Group != "lobby" || q.Policy != "ai" || q.Metrics.Players != 7 || req.Method != http.MethodPost {
			t.Errorf("asked %s %+v: %v", req.Method, q, err)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"instances":4,"comment":"more fields are allowed"}`)
	}))
	defer server.Close()
	r, p := newRig(t, true), hook(server.URL)
	if a := r.Answer("lobby", p); a.Given || a.Message == "" {
		t.Errorf("before the first call: %+v", a)
	}
	r.call(p)
	<-r.answers
	if a := r.Answer("lobby", p); !a.Given || a.Instances != 4 {
		t.Errorf("after an answer: %+v, want 4", a)
	}
	if next := r.Call("lobby", []scalepolicy.Policy{p}, scaling.Metrics{}); !next.Equal(time.Unix(1030, 0)) {
		t.Errorf("the next call is at %v, want after the interval", next)
	}
	status = http.StatusInternalServerError
	r.later(30 * time.Second)
	r.call(p)
	if a := r.Answer("lobby", p); !a.Given || a.Instances != 4 || !strings.Contains(a.Message, "status 500") {
		t.Errorf("after a failure: %+v, want 4 and why the call failed", a)
	}
	r.later(31 * time.Second)
	if a := r.Answer("lobby", p); a.Given || !strings.Contains(a.Message, "60 seconds") {
		t.Errorf("after the fallback: %+v, want no answer", a)
	}
	r.Call("lobby", nil, scaling.Metrics{})
	if a := r.Answer("lobby", p); a.Given || !strings.Contains(a.Message, "not answered yet") {
		t.Errorf("of a removed policy: %+v", a)
	}
}

func TestAWebhookThatHangsDelaysNothing(t *testing.T) {
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	defer server.Close()
	defer close(end)
	r, p := newRig(t, true), hook(server.URL)
	r.Call("lobby", []scalepolicy.Policy{p}, scaling.Metrics{})
	r.later(time.Hour)
	r.Call("lobby", []scalepolicy.Policy{p}, scaling.Metrics{}) // one call of a policy at a time
	if a := r.Answer("lobby", p); a.Given {
		t.Errorf("while the server hangs: %+v", a)
	}
	<-r.calls
	if a := r.Answer("lobby", p); a.Given || !strings.Contains(a.Message, "no answer within 1 seconds") {
		t.Errorf("after the timeout: %+v", a)
	}
	if len(r.calls) > 0 {
		t.Error("two calls of one policy at once")
	}
}

func TestWhatIsNoAnswer(t *testing.T) {
	for body, want := range map[string]string{
		"{}": "asks for no number", `{"instances":null}`: "asks for no number", "": "is not JSON", `{"instances":-1}`: "asks for -1", `{"instances":"4"}`: "is not JSON",
		`{"instances":1000000000}`: "asks for 1000000000", strings.Repeat(" ", maxAnswer) + "{}": "more than",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		r, p := newRig(t, true), hook(server.URL)
		r.call(p)
		if a := r.Answer("lobby", p); a.Given || !strings.Contains(a.Message, want) {
			t.Errorf("%.30q: %+v, want %q", body, a, want)
		}
		server.Close()
	}
}

func TestPrivateAddressesAndRedirectsAreRefused(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/", http.StatusTemporaryRedirect))
	defer server.Close()
	r, p := newRig(t, true), hook(server.URL)
	r.call(p)
	if a := r.Answer("lobby", p); a.Given || !strings.Contains(a.Message, "status 307") {
		t.Errorf("a redirect: %+v", a)
	}
	r = newRig(t, false)
	r.call(p)
	if a := r.Answer("lobby", p); a.Given || !strings.Contains(a.Message, "loopback") {
		t.Errorf("a loopback address: %+v", a)
	}
}
