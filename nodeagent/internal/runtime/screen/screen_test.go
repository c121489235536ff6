package screen_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/contract"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/pane"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/screen"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "pane" {
		os.Exit(pane.Main(os.Args[2:], os.Stderr))
	}
	os.Exit(contract.Main(m, within))
}

func within(h contract.Host) (runtime.Runtime, error) {
	return screen.New(context.Background(), screen.Config{
		Process: process.Config{Tree: h.Tree, Limiter: h.Limiter, Confine: h.Confine, Owner: h.Owner, BootID: h.BootID},
		Dir:     filepath.Join(h.Dir, "screen"), Pane: []string{fmt.Sprintf("/proc/%d/exe", os.Getpid()), "pane"},
	})
}

func TestLimits(t *testing.T) {
	contract.Needs(t, "screen")
	contract.RunLimits(t, within)
}

func TestConfinement(t *testing.T) {
	contract.Needs(t, "screen")
	contract.RunConfined(t, within)
}

func TestContract(t *testing.T) {
	contract.Needs(t, "screen")
	contract.Run(t, within)
}

func TestTerminalContract(t *testing.T) {
	contract.Needs(t, "screen")
	contract.RunTerminal(t, within, "screen")
}

func TestAHostThatCannotRunSessionsSaysWhy(t *testing.T) {
	contract.Needs(t, "screen")
	old, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(old, "screen"), []byte("#!/bin/sh\necho Screen version 4.01.00devel\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	for name, c := range map[string]struct {
		path string
		cfg  screen.Config
		want string
	}{
		"there is none":   {path: dir, want: "install it"},
		"it is too old":   {path: old + ":" + path, want: "screen 4.01 is too old"},
		"no program":      {path: path, want: "cannot run commands inside sessions"},
		"a path too long": {path: path, cfg: screen.Config{Pane: []string{"pane"}, Dir: "/" + strings.Repeat("x", 100)}, want: "bytes shorter"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			if _, err := screen.New(t.Context(), c.cfg); !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if _, err := exec.LookPath("screen"); err != nil {
		t.Error(err)
	}
}
