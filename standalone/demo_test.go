package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/standalone/stack"
)

func TestAfterThePasswordWasChangedNoHintReadsItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "admin-password")
	var out strings.Builder
	announce(t.Context(), &out, stack.Ready{API: "http://127.0.0.1:1", User: "admin", PasswordFile: file}, flags{demo: true}, true)
	for _, want := range []string{"with the password you chose", "YOUR-PASSWORD", "-demo changes nothing"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), file) {
		t.Errorf("the removed file %s is named in:\n%s", file, out.String())
	}
}
