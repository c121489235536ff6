package command_test

import (
	"context"
	"io"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
)

func TestEmptyArgumentsAreUsageErrors(t *testing.T) {
	for _, c := range []struct {
		allowed bool
		want    int
	}{{false, exit.Usage}, {true, exit.OK}} {
		cmd := command.New(&app.App{}, command.Spec{
			Use: "try NAME...", Short: "Try", Args: command.Between(1, -1, "a name"), EmptyArgs: c.allowed,
			Run: func(context.Context, []string) error { return nil },
		})
		cmd.SetArgs([]string{"lobby", ""})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.Execute(); exit.CodeOf(err) != c.want {
			t.Errorf("EmptyArgs %t: %v has code %d, want %d", c.allowed, err, exit.CodeOf(err), c.want)
		}
	}
}

func TestWrongFlagsAreUsageErrors(t *testing.T) {
	for name, args := range map[string][]string{
		"a required flag is missing": {"--one"},
		"flags exclude each other":   {"--must=x", "--one", "--other"},
		"arguments":                  {"--must=x", "extra"},
	} {
		cmd := command.New(&app.App{}, command.Spec{Use: "try", Short: "Try", Run: func(context.Context, []string) error { return nil }})
		cmd.Flags().Bool("one", false, "")
		cmd.Flags().Bool("other", false, "")
		cmd.Flags().String("must", "", "")
		cmd.MarkFlagsMutuallyExclusive("one", "other")
		if err := cmd.MarkFlagRequired("must"); err != nil {
			t.Fatal(err)
		}
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.Execute(); exit.CodeOf(err) != exit.Usage {
			t.Errorf("%s: %v has code %d", name, err, exit.CodeOf(err))
		}
	}
}
