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
	*target = fallback
	command.NumberP(cmd.Flags(), target, "number", "n", 1, "`number` of "+what+" to show, the newest ones")
	command.CompleteFlag(cmd, "number", cobra.NoFileCompletions)
}
