package main

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/standalone/stack"
)

func TestFreshStartIsReadyAndEmpty(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, data, "-node", "vega.one", "-memory", "512", "-cpu", "150")

	info, err := os.Stat(filepath.Join(data, "ready.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("ready.json: %v, mode %v; want 0600", err, info.Mode())
	}
	want := stack.Ready{
		API: p.ready.API, Etcd: p.ready.Etcd, User: "admin",
		PasswordFile: filepath.Join(data, "admin-password"), PID: p.cmd.Process.Pid,
	}
	if diff := cmp.Diff(want, p.ready); diff != "" {
		t.Errorf("ready.json (-want +got)\n%s", diff)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(p.ready.API, "http://127.0.0.1"))
	if n, _ := strconv.Atoi(port); err != nil || n == 0 {
		t.Errorf("%q: want http://127.0.0.1 and a real port", p.ready.API)
	}

	for _, path := range []string{"/api/v1/groups", "/api/v1/templates", "/api/v1/services"} {
		var page struct{ Total int }
		page.Total = -1
		p.get(path, &page)
		if page.Total != 0 {
			t.Errorf("GET %s: total %d, want 0 in a fresh start without -demo", path, page.Total)
		}
	}
	var node map[string]any
	p.get("/api/v1/nodes/vega.one", &node)
	if node["id"] != "vega.one" {
		t.Errorf("node %v, want the one that -node names", node)
	}

	p.stop()
	if _, err := os.Stat(filepath.Join(data, "ready.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ready.json after the end: %v, want it gone", err)
	}
}

func TestStaleReadyFileIsRemovedAtStart(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	stale := filepath.Join(data, "ready.json")
	if err := os.WriteFile(stale, []byte(`{"pid":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	refused(t, "-data", data, "-listen", busy.Addr().String())
	if _, err := os.Stat(stale); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stale ready.json is still there: %v", err)
	}
}

func TestItStartsWhileTheAdminIsLockedOut(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, data)
	for range 5 {
		err := p.call(http.MethodPost, "/api/v1/auth/login", map[string]string{"username": p.ready.User, "password": "not it"}, nil)
		if err == nil {
			t.Fatal("a wrong password is taken")
		}
	}
	p.stop()
	p = launch(t, data, nil)
	p.awaitReady()
	if _, err := stack.Login(t.Context(), p.ready.API, p.ready.User, p.ready.PasswordFile); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Errorf("the name is not locked out any more: %v", err)
	}
}

func TestRelativeDataDirectoryIsAnnouncedAbsolute(t *testing.T) {
	data := t.TempDir()
	t.Chdir(filepath.Dir(data))
	p := launch(t, filepath.Base(data), nil)
	p.awaitReady()
	if want := filepath.Join(data, "admin-password"); p.ready.PasswordFile != want {
		t.Errorf("passwordFile %q, want %q", p.ready.PasswordFile, want)
	}
	p.stop()
}

func TestSecondStandaloneOnOneDirectoryNamesTheFirst(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, data)
	want := "standalone: the data directory " + data + " is in use by another standalone (pid " +
		strconv.Itoa(p.cmd.Process.Pid) + "): stop it, or choose another with -data\n"
	if got := refused(t, "-data", data, "-listen", "127.0.0.1:0", "-demo"); got != want {
		t.Errorf("stderr\n got %q\nwant %q", got, want)
	}
	p.awaitReady() // the first one's ready.json is unchanged
	p.stop()
}
