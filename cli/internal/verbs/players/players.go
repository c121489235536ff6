// Package players has the commands that bring players to instances: allocations, players and networks.
package players

import (
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{allocate(a), release(a), renew(a), player(a), network(a)}
}
