// Package cluster has the commands for the settings that all gateways share.
package cluster

import (
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "config", Short: "Show and change the settings of all gateways",
		Long: `A setting of the cluster takes the place of each gateway's own while it runs. Each change is a version, and rollback goes
back to an earlier one.`,
		Example: `orrery config show
orrery config set security.lockout.maxFailures=10
orrery config rollback 3`,
	})
	cmd.AddCommand(show(a), set(a), addOrRemove(a, true), addOrRemove(a, false), history(a), rollback(a))
	return []*cobra.Command{cmd}
}
