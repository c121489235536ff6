package program_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/config"
	"github.com/orreryhq/orrery/libs/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// demanding are settings that are invalid without a secret.
type demanding struct{ program.Settings }

func (d *demanding) Validate() []error { return append(d.Settings.Validate(), d.RequireSecret()...) }

// check runs a program's health check and returns its exit code and output.
func check(args ...string) (int, string) {
	var s demanding
	var out bytes.Buffer
	spec := program.Spec{Name: "tester", Into: &s, Common: &s.Settings}
	code := program.Main(spec, append([]string{"healthcheck"}, args...), nil, &out, &out)
	return code, out.String()
}

func serveReadyz(t *testing.T, status int, text string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		fmt.Fprintln(w, text)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestHealthCheckReportsReadiness(t *testing.T) {
	ready := serveReadyz(t, http.StatusOK, "ready")
	waiting := serveReadyz(t, http.StatusServiceUnavailable, "waiting for view")
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ready)
	for name, tt := range map[string]struct {
		address string
		code    int
		says    string
	}{
		"a ready program":                     {ready, config.ExitOK, "ready\n"},
		"one that listens everywhere":         {":" + port, config.ExitOK, "ready\n"},
		"one that listens on all of IPv4":     {"0.0.0.0:" + port, config.ExitOK, "ready\n"},
		"one that waits":                      {waiting, config.ExitFailure, "not ready: waiting for view"},
		"nobody":                              {gone.Addr().String(), config.ExitFailure, "does not answer"},
		"a port that is picked at each start": {"127.0.0.1:0", config.ExitUsage, "admin.address must have a fixed port"},
		"no address":                          {"nonsense", config.ExitUsage, "admin.address"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out := check("--admin-address", tt.address)
			if code != tt.code || !strings.Contains(out, tt.says) {
				t.Errorf("exit code %d, said %q; want %d and %q", code, out, tt.code, tt.says)
			}
		})
	}
}

func TestHealthCheckHelp(t *testing.T) {
	code, out := check("--help")
	if code != config.ExitOK || !strings.Contains(out, "tester healthcheck") || !strings.Contains(out, "--admin-address") {
		t.Errorf("exit code %d, said %q", code, out)
	}
}
