package program_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/config"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/program"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

type deaf struct{}

func (deaf) Reset([]store.KeyValue, int64) {}
func (deaf) Apply([]store.Change, int64)   {}

// running runs a program that follows a prefix until the test ends.
func running(t *testing.T, etcd string, offline bool, flags ...string) (admin string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var s struct{ program.Settings }
	spec := program.Spec{
		Name: "tester", Into: &s, Common: &s.Settings, Offline: offline,
		Build: func(e program.Env) ([]lifecycle.Component, error) {
			join := lifecycle.Component{Name: "join", Start: func(ctx context.Context) error {
				_, err := e.Client.Join(ctx, e.Meta.CreatedAt)
				return err
			}}
			return []lifecycle.Component{join, {Name: "follower", Run: func(ctx context.Context) error {
				_ = e.Client.Follow(ctx, keys.Groups().String(), deaf{}) // ends with ctx
				return nil
			}}}, nil
		},
	}
	var ended sync.WaitGroup
	var out bytes.Buffer
	ended.Go(func() {
		if code := program.Main(spec, append([]string{"--etcd-endpoints", etcd, "--admin-address", admin}, flags...), nil, &out, &out); code != config.ExitOK {
			t.Errorf("exit code %d: %s", code, &out)
		}
	})
	t.Cleanup(ended.Wait)
	return admin
}

// TestReadinessReportsEtcdAway covers a service that needs etcd and one that works without.
func TestReadinessReportsEtcdAway(t *testing.T) {
	etcd := storetest.Start(t)
	waits, worksOn := running(t, etcd.Endpoint, false), running(t, etcd.Endpoint, true)
	t.Cleanup(func() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGTERM) }) // ends both before the cleanup waits for them
	says := func(admin string, code int, text string) {
		t.Helper()
		await.That(t, text, func() string {
			got, said := check("--admin-address", admin)
			return await.Unless(got == code && strings.Contains(said, text), "%d %s", got, said)
		})
	}
	says(waits, config.ExitOK, "ready\n")
	says(worksOn, config.ExitOK, "ready\n")
	etcd.Stop()
	says(waits, config.ExitFailure, "not ready: waiting for store: etcd not reachable since 20")
	says(worksOn, config.ExitOK, "ready, without store: etcd not reachable since 20")
	etcd.Restart(t)
	says(waits, config.ExitOK, "ready\n")
	says(worksOn, config.ExitOK, "ready\n")
}

// TestProgramProfilesRequireClusterSecret covers all services, because they share this code.
func TestProgramProfilesRequireClusterSecret(t *testing.T) {
	secret := strings.Repeat("s", 32)
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	etcd := storetest.Start(t)
	admin := running(t, etcd.Endpoint, false, "--cluster-secret-file", file)
	t.Cleanup(func() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGTERM) })
	await.That(t, "ready", func() string {
		code, said := check("--admin-address", admin)
		return await.Unless(code == config.ExitOK, "%d %s", code, said)
	})
	for token, want := range map[string]int{"": http.StatusUnauthorized, "another": http.StatusUnauthorized, secret: http.StatusOK} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+"/debug/pprof/heap", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("with the token %q: %d, want %d", token, resp.StatusCode, want)
		}
	}
}

func TestProgramWarnsOfUncompactedHistory(t *testing.T) {
	etcd := storetest.Start(t)
	if _, err := etcd.Client(t).Join(t.Context(), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	var out await.Text
	var s struct{ program.Settings }
	spec := program.Spec{
		Name: "tester", Into: &s, Common: &s.Settings,
		Build: func(program.Env) ([]lifecycle.Component, error) {
			return []lifecycle.Component{{Name: "end", Run: func(context.Context) error { return lifecycle.ErrEnd }}}, nil
		},
	}
	if code := program.Main(spec, []string{"--etcd-endpoints", etcd.Endpoint}, nil, &out, &out); code != config.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(out.String(), "etcd has never compacted its history") {
		t.Errorf("it logged:\n%s", &out)
	}
}
