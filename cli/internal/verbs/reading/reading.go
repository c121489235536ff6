// Package reading has the commands that show objects.
package reading

import (
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{get(a), ps(a), describe(a)}
}
