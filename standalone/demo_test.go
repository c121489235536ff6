package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/standalone/stack"
)

func TestAfterThePasswordWasChangedNoHintReadsItsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "admin-password")
	var out strings.Builder
	announce(t.Context(), &out, stack.Ready{API: "http://127.0.0.1:1", User: "admin", PasswordFile: file}, flags{demo: true}, "Ctrl-C ends it.")
	for _, want := range []string{"with the password you chose", "-demo changes nothing"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), file) {
		t.Errorf("the removed file %s is named in:\n%s", file, out.String())
	}
}

func TestPrintedLinesWorkWithAnyDataDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), `it's "a" $HOME`)
	file := filepath.Join(dir, "admin-password")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("the-password"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := stack.Ready{API: "http://127.0.0.1:1", User: "admin", PasswordFile: file, EtcdTLS: "https://127.0.0.1:2", EtcdCertificates: dir}
	for line, want := range map[string]string{
		loginLine(r):                  dir,
		"etcdctl " + r.EtcdctlFlags(): "--cert=" + filepath.Join(dir, "client.pem"),
	} {
		functions := `orrery() { printf '%s\n' "$@" >&2; }; etcdctl() { orrery "$@"; }; `
		out, err := exec.CommandContext(t.Context(), "sh", "-c", functions+line).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want+"\n") {
			t.Errorf("%s passes %s, %v; want %s", line, out, err, want)
		}
	}
}
