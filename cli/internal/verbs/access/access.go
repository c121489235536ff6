// Package access has the commands that choose a server and log in.
package access

import (
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		up(a), down(a), login(a), logout(a), passwd(a), secondFactor(a), contextCommand(a), status(a), versionCommand(a), userCommand(a), roleCommand(a),
	}
}
