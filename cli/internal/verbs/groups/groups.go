// Package groups has the commands that change how groups run: their number, scaling, maintenance, schedules,
// overlays and notices, and those that look at their crashes.
package groups

import (
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		scale(a), scaling(a), maintenance(a), schedule(a), overlay(a), notice(a), crash(a),
	}
}
