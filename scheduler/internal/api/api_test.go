package api_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/scheduler/client"
	"github.com/orreryhq/orrery/scheduler/internal/api"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "0123456789abcdef0123456789abcdef"

// serve starts the API over a fixed model and returns a client.
func serve(t *testing.T, ask api.Ask, l api.Limits) (*client.Client, *httptest.Server) {
	t.Helper()
	server := httptest.NewServer(api.Handler(ask, trust.BySecret(secret), l))
	t.Cleanup(server.Close)
	return client.New(server.Client(), server.URL, secret), server
}

func TestWhoAsksInExcessIsToldToComeBack(t *testing.T) {
	asked := make(chan struct{})
	busy := func(ctx context.Context, _ int64) (*facts.Moment, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, errs.Wrap("ask", ctx.Err())
	}
	c, server := serve(t, busy, api.Limits{Explain: 1, Simulate: 1, Queue: time.Millisecond, Answer: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() {
		_, err := c.Explain(ctx, "aaaaaa", 0)
		first <- err
	}()
	<-asked
	if _, err := c.Explain(t.Context(), "bbbbbb", 0); !errs.Is(err, errs.Exhausted) {
		t.Errorf("the second: %v", err)
	}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/instances/bbbbbb/explain", nil)
	r.Header.Set("Authorization", "Bearer "+secret)
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	cancel()
	if err := <-first; !errs.Is(err, errs.Canceled) {
		t.Errorf("the first: %v", err)
	}
	next := make(chan error)
	go func() { // the turn is free once the server has seen the first client leave
		for {
			_, err := c.Explain(t.Context(), "cccccc", 0)
			if errs.Is(err, errs.Exhausted) {
				continue
			}
			next <- err
			return
		}
	}()
	<-asked
	server.CloseClientConnections()
	<-next
}

func TestAnAnswerIsBoundedInTime(t *testing.T) {
	slow := func(ctx context.Context, _ int64) (*facts.Moment, error) {
		<-ctx.Done()
		return nil, errs.Wrap("ask", ctx.Err())
	}
	c, _ := serve(t, slow, api.Limits{Explain: 1, Simulate: 1, Queue: time.Minute, Answer: time.Millisecond})
	if _, err := c.Explain(t.Context(), "aaaaaa", 0); !errs.Is(err, errs.Unavailable) {
		t.Errorf("%v", err)
	}
	q := client.Question{Lose: &client.NodeQuestion{Node: "n1"}}
	if _, err := c.Simulate(t.Context(), q, 0); !errs.Is(err, errs.Unavailable) {
		t.Errorf("%v", err)
	}
}

func TestWhatCannotBeReadIsRefusedBeforeAnybodyIsAsked(t *testing.T) {
	_, server := serve(t, func(context.Context, int64) (*facts.Moment, error) {
		t.Error("asked")
		return nil, errs.New(errs.Internal, "asked")
	}, api.DefaultLimits())
	for name, c := range map[string]struct {
		method, path, body string
		status             int
	}{
		"no JSON":             {"POST", "/v1/simulate", "{", 400},
		"an unknown field":    {"POST", "/v1/simulate", `{"carry":{"node":"n"}}`, 400},
		"a wrong type":        {"POST", "/v1/simulate", `{"place":{"group":"g","count":"3"}}`, 400},
		"a fraction":          {"POST", "/v1/simulate", `{"place":{"group":"g","count":1.5}}`, 400},
		"nothing":             {"POST", "/v1/simulate", `{}`, 422},
		"a negative count":    {"POST", "/v1/simulate", `{"place":{"group":"g","count":-1}}`, 422},
		"no id":               {"GET", "/v1/instances/..%2f..%2f/explain", "", 404},
		"no revision":         {"GET", "/v1/instances/aaaaaa/explain?atLeast=now", "", 400},
		"no route":            {"GET", "/v1/nodes", "", 404},
		"another method":      {"DELETE", "/v1/simulate", "", 404},
		"a very long body":    {"POST", "/v1/simulate", `{"place":{"group":"` + strings.Repeat("x", 2<<20) + `"}}`, 413},
		"a count past all 64": {"POST", "/v1/simulate", `{"place":{"group":"g","count":99999999999999999999}}`, 400},
	} {
		r, _ := http.NewRequestWithContext(t.Context(), c.method, server.URL+c.path, strings.NewReader(c.body))
		r.Header.Set("Authorization", "Bearer "+secret)
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d %s, want %d", name, resp.StatusCode, body, c.status)
		}
	}
}
