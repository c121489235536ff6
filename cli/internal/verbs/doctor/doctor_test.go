package doctor_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/verbs/doctor"
)

func TestDoctorSaysWhatToFix(t *testing.T) {
	clitest.Golden(t, doctor.Commands, []clitest.Case{
		{Args: `doctor`},
		{Args: `doctor -o json`},
		{Args: `doctor -o name`},
		{Args: `doctor --data nowhere`},
	})
}

func TestWithoutALoginItSaysWhatALoginAdds(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/system/version":
			_, _ = w.Write([]byte(`{"version":"devel"}`))
		case "/api/v1/system/ready":
			_, _ = w.Write([]byte(`{"status":"READY","checks":{"store":"UP"}}`))
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	r := clitest.Run(t, doctor.Commands, server.URL, "", "doctor")
	if r.Code != exit.OK || !strings.Contains(r.Err, "with a login it also checks") || strings.Contains(r.Out, "services") {
		t.Errorf("got %s", r)
	}
}

func TestAServerThatCannotBeReachedFails(t *testing.T) {
	for name, address := range map[string]string{"nobody listens": "http://127.0.0.1:1", "not a URL": "127.0.0.1"} {
		r := clitest.Run(t, doctor.Commands, address, "", "doctor")
		if r.Code == exit.OK || name == "nobody listens" && !strings.Contains(r.Out, "FAIL server") {
			t.Errorf("%s: got %s", name, r)
		}
	}
}

func TestAnotherClockIsFound(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
		_, _ = w.Write([]byte(`{"version":"devel","status":"READY"}`))
	}))
	defer server.Close()
	r := clitest.Run(t, doctor.Commands, server.URL, "", "doctor")
	if !strings.Contains(r.Out, "FAIL clock") || !strings.Contains(r.Out, "timedatectl") {
		t.Errorf("got %s", r)
	}
}

func TestAStandaloneThatDoesNotRunIsCheckedToo(t *testing.T) {
	data := t.TempDir()
	if err := os.Mkdir(filepath.Join(data, "etcd"), 0o700); err != nil {
		t.Fatal(err)
	}
	server := clitest.NewServer(t)
	r := clitest.Run(t, doctor.Commands, server.URL, "", "doctor", "--data", data)
	for _, want := range []string{"inotify", "SKIP files", "disk", "port"} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("%q is missing in %s", want, r)
		}
	}
}
