package relay_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/nodeagent/internal/node/relay"
)

// open runs a relay until the test ends or stop is called.
func open(t *testing.T, dir string, gateways ...string) (r *relay.Relay, stop func()) {
	t.Helper()
	r, err := relay.Open(dir, gateways, &http.Transport{DisableKeepAlives: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	ended := false
	stop = func() {
		if cancel(); !ended {
			ended = true
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return r, stop
}

// gateway answers with what it was asked.
func gateway(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, strings.Join([]string{name, r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"), string(body)}, " "))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// dead returns the URL of a gateway that is not there.
func dead(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer own")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestACallReachesAGatewayAlthoughOthersAreAway(t *testing.T) {
	r, _ := open(t, t.TempDir(), dead(t), gateway(t, "second"), dead(t))
	for range 3 {
		if status, said := post(t, r.URL()+"/api/plugin/heartbeat?x=1%2F2", "body"); status != 200 || said != "second POST /api/plugin/heartbeat?x=1%2F2 Bearer own body" {
			t.Errorf("%d %q", status, said)
		}
	}
}

func TestWithoutAGatewayACallSaysSo(t *testing.T) {
	r, _ := open(t, t.TempDir(), dead(t), dead(t))
	if status, said := post(t, r.URL()+"/api/x", "body"); status != http.StatusServiceUnavailable || !strings.Contains(said, "UNAVAILABLE") {
		t.Errorf("%d %q", status, said)
	}
}

func TestTheNextAgentHasTheSameAddress(t *testing.T) {
	dir, url := t.TempDir(), gateway(t, "one")
	first, stop := open(t, dir, url)
	stop()
	second, stop := open(t, dir, url)
	if first.URL() != second.URL() {
		t.Errorf("instances know %s, the relay has %s", first.URL(), second.URL())
	}
	stop()
	taken, err := net.Listen("tcp", strings.TrimPrefix(first.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	third, _ := open(t, dir, url)
	if status, _ := post(t, third.URL()+"/api/x", ""); third.URL() == first.URL() || status != 200 {
		t.Errorf("with its address taken: %s, %d", third.URL(), status)
	}
}
