// Package content has the commands for what instances are made of and hold: templates, files, secrets,
// sources, the catalog and the caches of nodes.
package content

import (
	"context"
	"net/url"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		templateCommand(a), fileCommand(a), secretCommand(a), sourceCommand(a), catalogCommand(a), cacheCommand(a),
	}
}

// part is a list that belongs to one object, such as the versions of a template. {group} in its path
// stands for that object.
func part(plural, path, nameField string, columns []output.Column) *kinds.Kind {
	return &kinds.Kind{Name: nameField, Plural: plural, Path: path, NameField: nameField, Columns: columns}
}

// printPart prints a part of the object owner of a kind.
func printPart(ctx context.Context, a *app.App, p *kinds.Kind, of *kinds.Kind, owner string, query url.Values) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	rows, err := app.List(ctx, client, p, owner, query)
	if err != nil {
		return app.Suggest(ctx, client, err, of, "", owner)
	}
	return printRows(a, p, rows)
}

// printRows prints a list. On a terminal an empty one is a note.
func printRows(a *app.App, p *kinds.Kind, rows []output.Row) error {
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	if len(rows) == 0 && printer.Format.ForPeople() {
		a.Notef("no %s found", p.Plural)
		return nil
	}
	return printer.List(p.Columns, p.NameField, rows)
}

// short returns the beginning of a digest that tables show.
func short(digest string) string { return digest[:min(len(digest), shortDigest)] }

// shortDigest is long enough to name a version to the server.
const shortDigest = 16

// onTemplate runs an act on one template. If the template does not exist, the error names similar
// ones.
func onTemplate(ctx context.Context, a *app.App, name string, act func(client *orrery.Client) error) error {
	return onObject(ctx, a, "template", name, act)
}

// onObject runs an act on the object name of a kind.
func onObject(ctx context.Context, a *app.App, kind, name string, act func(client *orrery.Client) error) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	if err := act(client); err != nil {
		return app.Suggest(ctx, client, err, kinds.Get(kind), "", name)
	}
	return nil
}

// dryRunFlag declares --dry-run.
func dryRunFlag(cmd *cobra.Command, into *bool) {
	cmd.Flags().BoolVar(into, "dry-run", false, "show what would be done, and do nothing")
}

// completeFirst completes the first argument with names of a kind, and the others as then does; nil
// completes nothing.
func completeFirst(a *app.App, kind string, then cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return command.CompleteNames(a, kind)(cmd, args, toComplete)
		case then != nil:
			return then(cmd, args[1:], toComplete)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// localPaths completes files of this machine.
func localPaths(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}
