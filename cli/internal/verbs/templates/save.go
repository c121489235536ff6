package templates

import (
	"context"
	"fmt"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

type saveOptions struct {
	instance, template string
	path               string
	dryRun             bool
}

func templateSave(a *app.App) *cobra.Command {
	var o saveOptions
	cmd := command.New(a, command.Spec{
		Use: "save INSTANCE TEMPLATE", Short: "Save the configuration of a running instance to a template, as one version",
		Long: `Text files that the server changed are written to the template, and values of placeholders become placeholders again.
Worlds, binary files and files that hold a secret are left out; standard error lists them.`,
		Example: `orrery template save lobby-1 lobby --dry-run
orrery template save lobby-1 lobby --path plugins/Essentials`,
		Args: command.Between(2, 2, "the name of an instance and of a template"), Complete: command.CompleteFirst(a, "instance", command.CompleteFirst(a, "template", nil)),
		Run: func(ctx context.Context, args []string) error {
			o.instance, o.template = args[0], args[1]
			client, err := a.Client()
			if err != nil {
				return err
			}
			return runSave(ctx, a, client, o)
		},
	})
	cmd.Flags().StringVar(&o.path, "path", "", "save only files below this `directory` of the instance")
	command.DryRunFlag(a, cmd, &o.dryRun)
	command.CompleteFlag(cmd, "path", cobra.NoFileCompletions)
	return cmd
}

func runSave(ctx context.Context, a *app.App, client *orrery.Client, o saveOptions) error {
	save := client.SaveInstanceToTemplate
	if o.dryRun {
		save = client.SaveInstanceToTemplateDryRun
	}
	body := &orrery.SaveInstanceToTemplateRequest{Template: o.template}
	if o.path != "" {
		body.PathPrefix = &o.path
	}
	done, err := save(ctx, o.instance, body)
	if err != nil {
		err = app.Suggest(ctx, client, err, kinds.Get("instance"), "", o.instance)
		if exit.HintOf(err) == "" {
			err = app.Suggest(ctx, client, err, kinds.Get("template"), "", o.template)
		}
		return err
	}
	for _, skipped := range done.Skipped {
		a.Notef("left out: %s", skipped)
	}
	if o.dryRun {
		return printChanges(a, changesOf(done.Files), nothingToSave(done.Unchanged))
	}
	return a.Say(done, o.template, "template %s is at version %s: %s of %s saved, %d unchanged",
		done.Template, kinds.Version(done.Hash), output.Counted(done.FilesWritten, "file"), o.instance, done.Unchanged)
}

// nothingToSave says that no file differs from the template. unchanged is how many files were compared.
func nothingToSave(unchanged int64) string {
	switch unchanged {
	case 0:
		return "nothing would change"
	case 1:
		return "nothing would change: 1 file has the content of the template"
	}
	return fmt.Sprintf("nothing would change: %d files have the content of the template", unchanged)
}
