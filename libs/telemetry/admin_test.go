package telemetry_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newAdmin(t *testing.T, address string, ready func() (bool, []string)) *telemetry.Admin {
	t.Helper()
	reg, err := telemetry.NewRegistry("scheduler", "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	return telemetry.NewAdmin(telemetry.AdminOptions{
		Address: address, Gatherer: reg, Ready: ready, Log: slog.New(slog.DiscardHandler),
	})
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestAdminServesUntilItIsStopped(t *testing.T) {
	var gates lifecycle.Gates
	gate := gates.Gate("view")
	admin := newAdmin(t, "", gates.Ready)
	ctx, cancel := context.WithCancel(t.Context())
	var base string
	check := lifecycle.Component{Name: "check", Start: func(context.Context) error {
		base = "http://" + admin.Addr()
		want := func(path string, status int, text string) {
			t.Helper()
			if got, body := get(t, base+path); got != status || !strings.Contains(body, text) {
				t.Errorf("%s: got %d %q, want %d with %q", path, got, body, status, text)
			}
		}
		want("/livez", 200, "alive")
		want("/readyz", 503, "waiting for view")
		gate.Open()
		want("/readyz", 200, "ready")
		want("/metrics", 200, `orrery_scheduler_build_info{go="go`)
		want("/metrics", 200, `version="v1.2.3"`)
		want("/metrics", 200, "go_goroutines")
		want("/metrics", 200, "process_cpu_seconds_total")
		want("/nope", 404, "")
		cancel()
		return nil
	}}
	if err := lifecycle.Run(ctx, slog.New(slog.DiscardHandler), admin.Component(), check); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", admin.Addr()); err == nil {
		t.Error("still listening")
	}
}

func TestReadyServiceListsMissingParts(t *testing.T) {
	admin := newAdmin(t, "", func() (bool, []string) { return true, []string{"store: away"} })
	w := httptest.NewRecorder()
	admin.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if w.Code != http.StatusOK || w.Body.String() != "ready, without store: away\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

func TestAddressInUseIsReported(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	admin := newAdmin(t, l.Addr().String(), nil)
	err = lifecycle.Run(t.Context(), slog.New(slog.DiscardHandler), admin.Component())
	if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), "is in use by another process") {
		t.Errorf("got %v", err)
	}
	if errs.FieldOf(err) != "admin.address" {
		t.Errorf("field %q", errs.FieldOf(err))
	}
}

func TestNilReadyMeansReady(t *testing.T) {
	admin := newAdmin(t, "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	check := lifecycle.Component{Name: "check", Start: func(context.Context) error {
		if status, _ := get(t, "http://"+admin.Addr()+"/readyz"); status != 200 {
			t.Errorf("got %d", status)
		}
		cancel()
		return nil
	}}
	if err := lifecycle.Run(ctx, slog.New(slog.DiscardHandler), admin.Component(), check); err != nil {
		t.Error(err)
	}
}

// broken is the connection of a client that has disconnected.
type broken struct{ http.ResponseWriter }

func (broken) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
}

func TestDisconnectedMetricsClientIsNotLogged(t *testing.T) {
	var said bytes.Buffer
	registry := prometheus.NewRegistry()
	for _, name := range []string{"a", "b"} {
		registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: name}))
	}
	a := telemetry.NewAdmin(telemetry.AdminOptions{Gatherer: registry, Log: slog.New(slog.NewTextHandler(&said, nil))})
	a.Handler().ServeHTTP(broken{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if said.Len() > 0 {
		t.Errorf("it said %s", &said)
	}
}

func TestLoopbackListenerRefusesForeignHosts(t *testing.T) {
	var gates lifecycle.Gates
	admin := newAdmin(t, "", gates.Ready)
	check := lifecycle.Component{Name: "check", Start: func(ctx context.Context) error {
		_, port, err := net.SplitHostPort(admin.Addr())
		if err != nil {
			return err
		}
		for host, want := range map[string]int{
			"127.0.0.1:" + port: 200, "127.0.0.1": 200, "localhost:" + port: 200, "[::1]:" + port: 200,
			"evil.example:" + port: 403, "evil.example": 403, "localhost.evil.example:" + port: 403,
		} {
			for _, path := range []string{"/metrics", "/livez"} {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin.Addr()+path, nil)
				if err != nil {
					return err
				}
				r.Host = host
				resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
				if err != nil {
					return err
				}
				_ = resp.Body.Close()
				if resp.StatusCode != want {
					t.Errorf("%s for %s: %d, want %d", path, host, resp.StatusCode, want)
				}
			}
		}
		return nil
	}}
	done := lifecycle.Component{Name: "done", Run: func(context.Context) error { return lifecycle.ErrEnd }}
	if err := lifecycle.Run(t.Context(), slog.New(slog.DiscardHandler), admin.Component(), check, done); err != nil {
		t.Error(err)
	}
}

func TestProfilesRequireTheSecret(t *testing.T) {
	const secret = "the cluster secret of this test."
	profiles := []string{
		"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline", "/debug/pprof/symbol",
		"/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1",
	}
	for _, c := range []struct {
		name, secret, header string
		status               int
	}{
		{"no token", secret, "", http.StatusUnauthorized},
		{"another token", secret, "Bearer another", http.StatusUnauthorized},
		{"an empty token", secret, "Bearer ", http.StatusUnauthorized},
		{"no bearer", secret, secret, http.StatusUnauthorized},
		{"the secret", secret, "Bearer " + secret, http.StatusOK},
		{"a program without a secret", "", "Bearer ", http.StatusForbidden},
	} {
		a := telemetry.NewAdmin(telemetry.AdminOptions{Gatherer: prometheus.NewRegistry(), Secret: c.secret, Log: slog.New(slog.DiscardHandler)})
		for _, path := range profiles {
			if c.status == http.StatusOK && strings.Contains(path, "seconds") {
				continue // slow, and covered by the others
			}
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set("Authorization", c.header)
			w := httptest.NewRecorder()
			a.Handler().ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("%s with %s: %d, want %d: %.200s", path, c.name, w.Code, c.status, w.Body)
			}
		}
	}
}
