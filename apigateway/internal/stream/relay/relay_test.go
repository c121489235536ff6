package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/apigateway/internal/server/peer"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/trust"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "0123456789abcdef"

// gateway is a fake gateway that stores received events in came.
type gateway struct {
	*httptest.Server
	mu   sync.Mutex
	came []string
}

// newGateway starts a fake gateway. If it hangs, it never responds.
func newGateway(t *testing.T, hangs bool) *gateway {
	g := &gateway{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var b batch
		if err := json.NewDecoder(r.Body).Decode(&b); err != nil || r.URL.Path != Path || r.Header.Get("Authorization") != "Bearer "+secret {
			t.Errorf("%s %s with %v: %v", r.Method, r.URL, r.Header, err)
		}
		g.mu.Lock()
		for _, m := range b.Events {
			g.came = append(g.came, string(m.Type))
		}
		g.mu.Unlock()
		if hangs {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *gateway) told() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.came)
}

// started returns a running relay with peers.
func started(t *testing.T, peers ...*cluster.Session) *Relay {
	t.Helper()
	r, calls := newRelay(peers...)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); calls.CloseIdle() })
	return r
}

// newRelay returns a relay and its connections.
func newRelay(peers ...*cluster.Session) (*Relay, upstream.Connections) {
	own := trust.BySecret(secret)
	calls := upstream.NewConnections(own, &http.Transport{})
	return New(Config{
		Replica: "own", Client: peer.NewClient(own, calls), Events: events.NewLog(0),
		Peers: func() []*cluster.Session {
			return append(peers, &cluster.Session{Replica: "own", URL: "http://127.0.0.1:1"})
		},
		Log:     slog.New(slog.DiscardHandler),
		Metrics: telemetry.NewMetrics(prometheus.NewRegistry(), "apigateway"),
	}), calls
}

func TestAGatewayThatDoesNotAnswerKeepsNothingFromTheOthers(t *testing.T) {
	hanging, good := newGateway(t, true), newGateway(t, false)
	r := started(t, &cluster.Session{Replica: "a", URL: hanging.URL}, &cluster.Session{Replica: "b", URL: good.URL + "/"})
	var want []string
	for n := range 3 * ahead {
		typ := fmt.Sprint("EVENT-", n)
		r.Publish(events.Event{Type: events.Type(typ), Fields: events.Fields{"n": n}})
		want = append(want, typ)
		await.That(t, typ+" is told", func() string {
			return await.Unless(slices.Equal(good.told(), want), "%v", good.told())
		})
	}
	if came := hanging.told(); len(came) > 2 {
		t.Errorf("who does not answer is told more and more: %v", came)
	}
}

func TestWhoDoesNotAnswerIsSaidNotTo(t *testing.T) {
	gone := newGateway(t, false)
	gone.Close()
	r, _ := newRelay()
	err := r.RequestShutdown(t.Context(), &cluster.Session{Replica: "a", URL: gone.URL})
	if !errs.Is(err, errs.Unavailable) || errs.MessageOf(err) != "it does not answer" {
		t.Errorf("it says %v", err)
	}
}

func TestWhatWaitsIsBoundedInNumberAndSize(t *testing.T) {
	r, _ := newRelay()
	for range maxQueued + 10 {
		r.Publish(events.Event{Type: "X"})
	}
	if n := len(r.take()); n != maxQueued {
		t.Errorf("%d wait", n)
	}
	large := strings.Repeat("x", maxBytes/4)
	for range 10 {
		r.Publish(events.Event{Type: "X", Fields: events.Fields{"payload": large}})
	}
	if n := len(r.take()); n != 3 {
		t.Errorf("%d large ones wait", n)
	}
}

// FuzzBatch sends malformed batches to a relay. It must reject or deliver each, and still deliver later
// batches.
func FuzzBatch(f *testing.F) {
	r, _ := newRelay()
	passed := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	send := func(token, body string) int {
		req := httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		peer.Handler(passed, secret, r.PeerEndpoints()...).ServeHTTP(w, req)
		return w.Code
	}
	const good = `{"from":"other","to":"own","events":[{"type":"CUSTOM_EVENT","group":"lobby","fields":{"a":{"b":[1,null]},"c":null}}]}`
	for _, seed := range []string{
		good, "", "null", "[]", "{", `{"events":null}`, `{"from":"own","to":"own","events":[{}]}`, `{"to":"own","events":[{"type":"\u0000\n","fields":null}]}`,
		`{"to":"own","events":[{"type":7}]}`, good + good, strings.Repeat("[", 20_000), `{"to":"own","events":[` + strings.Repeat(`{},`, 1000) + `{}]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if code := send(secret, body); code != http.StatusNoContent && code != http.StatusBadRequest {
			t.Errorf("answered with %d", code)
		}
		if code := send(secret, good); code != http.StatusNoContent {
			t.Errorf("what comes after is answered with %d", code)
		}
		if code := send("not it", body); code != http.StatusTeapot {
			t.Errorf("who has no secret is answered with %d", code)
		}
	})
}
