// Package content has the commands for files and backups of instances, secrets, sources, the catalog and the caches of nodes.
package content

import (
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{fileCommand(a), backupCommand(a), secretCommand(a), sourceCommand(a), catalogCommand(a), cacheCommand(a)}
}
