// Package access has the commands that choose a server and log in.
package access

import (
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{login(a), logout(a), contextCommand(a), status(a), versionCommand(a)}
}
