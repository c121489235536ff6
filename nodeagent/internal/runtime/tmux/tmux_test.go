package tmux_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/contract"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/tmux"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "pane" {
		os.Exit(contract.Pane(os.Args[2:]))
	}
	os.Exit(contract.Main(m, newRuntime))
}

func newRuntime(h contract.Host) (runtime.Runtime, error) {
	return tmux.New(context.Background(), process.SessionConfig{
		Process: process.Config{Tree: h.Tree, Limiter: h.Limiter, View: h.View, Owner: h.Owner, BootID: h.BootID},
		Dir:     filepath.Join(h.Dir, "tmux"), Pane: []string{fmt.Sprintf("/proc/%d/exe", os.Getpid()), "pane"},
	})
}

func TestLimits(t *testing.T) {
	contract.Needs(t, "tmux")
	contract.RunLimits(t, newRuntime)
}

func TestConfinement(t *testing.T) {
	contract.Needs(t, "tmux")
	contract.RunConfined(t, newRuntime)
}

func TestContract(t *testing.T) {
	contract.Needs(t, "tmux")
	contract.Run(t, newRuntime)
}

func TestTerminalContract(t *testing.T) {
	contract.Needs(t, "tmux")
	contract.RunTerminal(t, newRuntime, "tmux")
}

func TestUnusableHostIsExplained(t *testing.T) {
	contract.Needs(t, "tmux")
	contract.RunRefusals(t, "tmux", "tmux 2.9a", "tmux 2.9a is too old", func(ctx context.Context, dir string, pane []string) error {
		_, err := tmux.New(ctx, process.SessionConfig{Dir: dir, Pane: pane})
		return err
	})
}
