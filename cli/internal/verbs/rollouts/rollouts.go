// Package rollouts has the commands that replace the instances of groups by new ones.
package rollouts

import (
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command { return []*cobra.Command{rollout(a)} }
