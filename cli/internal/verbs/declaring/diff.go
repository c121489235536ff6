package declaring

import (
	"context"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/spf13/cobra"
)

func diff(a *app.App) *cobra.Command {
	o := applyOptions{dryRun: true, compareOnly: true}
	cmd := command.New(a, command.Spec{
		Use:   "diff -f FILE...",
		Short: "Show what apply would change",
		Long: `It shows each field that would change, and the instances that would start, move and stop. It changes nothing.
The exit code is 0 with and without differences.`,
		Example: `orrery diff -f group.yaml
orrery diff -f group.yaml --prune -o json`,
		Args: cobra.ArbitraryArgs, Complete: completeDocuments,
		Run: func(ctx context.Context, args []string) error {
			o.files = append(o.files, args...)
			return runApply(ctx, a, o)
		},
	})
	fileFlag(cmd, &o.files)
	cmd.Flags().BoolVar(&o.force, "force", false, "show what apply --force would overwrite")
	cmd.Flags().BoolVar(&o.prune, "prune", false, "show also what apply --prune would delete")
	return cmd
}
