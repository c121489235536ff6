package tmux_test

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
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/tmux"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "pane" {
		os.Exit(pane.Main(os.Args[2:], os.Stderr))
	}
	os.Exit(contract.Main(m, within))
}

func within(h contract.Host) (runtime.Runtime, error) {
	return tmux.New(context.Background(), tmux.Config{
		Process: process.Config{Tree: h.Tree, Limiter: h.Limiter, Confine: h.Confine, Owner: h.Owner, BootID: h.BootID},
		Dir:     filepath.Join(h.Dir, "tmux"), Pane: []string{fmt.Sprintf("/proc/%d/exe", os.Getpid()), "pane"},
	})
}

func TestLimits(t *testing.T) {
	contract.Needs(t, "tmux")
	contract.RunLimits(t, within)
}

func TestConfinement(t *testing.T) {
	contract.Needs(t, "tmux")
	contract.RunConfined(t, within)
}

func TestContract(t *testing.T) {
	contract.Needs(t, "tmux")
	contract.Run(t, within)
}

func TestTerminalContract(t *testing.T) {
	contract.Needs(t, "tmux")
	contract.RunTerminal(t, within, "tmux")
}

func TestAHostThatCannotRunSessionsSaysWhy(t *testing.T) {
	contract.Needs(t, "tmux")
	old, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(old, "tmux"), []byte("#!/bin/sh\necho tmux 2.9a\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	for name, c := range map[string]struct {
		path string
		cfg  tmux.Config
		want string
	}{
		"there is none":   {path: dir, want: "install it"},
		"it is too old":   {path: old + ":" + path, want: "tmux 2.9a is too old"},
		"no program":      {path: path, want: "cannot run commands inside sessions"},
		"a path too long": {path: path, cfg: tmux.Config{Pane: []string{"pane"}, Dir: "/" + strings.Repeat("x", 100)}, want: "bytes shorter"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			if _, err := tmux.New(t.Context(), c.cfg); !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Error(err)
	}
}
