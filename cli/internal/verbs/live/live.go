// Package live has the commands that follow what happens: output and events.
package live

import (
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{logs(a), events(a)}
}
