// Package declaring has the commands that work with documents: apply, diff, create, edit and export.
package declaring

import (
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{apply(a), diff(a), create(a), edit(a), export(a)}
}
