package screen_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/contract"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/screen"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "pane" {
		os.Exit(contract.Pane(os.Args[2:]))
	}
	os.Exit(contract.Main(m, newRuntime))
}

func newRuntime(h contract.Host) (runtime.Runtime, error) {
	return screen.New(context.Background(), process.SessionConfig{
		Process: process.Config{Tree: h.Tree, Limiter: h.Limiter, View: h.View, Owner: h.Owner, BootID: h.BootID},
		Dir:     filepath.Join(h.Dir, "screen"), Pane: []string{fmt.Sprintf("/proc/%d/exe", os.Getpid()), "pane"},
	})
}

func TestLimits(t *testing.T) {
	contract.Needs(t, "screen")
	contract.RunLimits(t, newRuntime)
}

func TestConfinement(t *testing.T) {
	contract.Needs(t, "screen")
	contract.RunConfined(t, newRuntime)
}

func TestContract(t *testing.T) {
	contract.Needs(t, "screen")
	contract.Run(t, newRuntime)
}

func TestTerminalContract(t *testing.T) {
	contract.Needs(t, "screen")
	contract.RunTerminal(t, newRuntime, "screen")
}

func TestUnusableHostIsExplained(t *testing.T) {
	contract.Needs(t, "screen")
	contract.RunRefusals(t, "screen", "Screen version 4.01.00devel", "screen 4.01 is too old", func(ctx context.Context, dir string, pane []string) error {
		_, err := screen.New(ctx, process.SessionConfig{Dir: dir, Pane: pane})
		return err
	})
}
