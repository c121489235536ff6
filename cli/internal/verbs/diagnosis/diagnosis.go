// Package diagnosis has the commands that find out what is wrong, why, and what would happen.
package diagnosis

import (
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{problems(a), explain(a), simulate(a), history(a), audit(a), share(a)}
}

// numberFlag declares -n.
func numberFlag(cmd *cobra.Command, target *int, fallback int, what string) {
	cmd.Flags().IntVarP(target, "number", "n", fallback, "`number` of "+what+" to show, the newest ones")
	command.CompleteFlag(cmd, "number", cobra.NoFileCompletions)
}

func checkNumber(n int) error {
	if n < 1 {
		return command.UsageError("for example -n 100", "-n %d: it must be at least 1", n)
	}
	return nil
}
