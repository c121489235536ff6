package acting

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

type deleteOptions struct {
	selection         command.Selection
	discardData, wait bool
}

func deletable(k *kinds.Kind) bool { return k.Deletable }

func deleteCommand(a *app.App) *cobra.Command {
	o := &deleteOptions{}
	cmd := command.New(a, command.Spec{
		Use: "delete KIND NAME...", Aliases: []string{"rm", "remove"}, Short: "Delete objects",
		Long: `The kinds are ` + strings.Join(kinds.Names(deletable), ", ") + `.

The instances of a deleted group stop. An instance must have ended before its record can be deleted: stop it first. Tokens
are named by their id, or by the name or node that they were made for. The flags that select objects are for instances.`,
		Example: `orrery delete group lobby
orrery delete group/lobby --dry-run
orrery rm schedule nightly weekly
orrery delete node node-3 --discard-data
orrery delete instances --group lobby --yes
orrery delete api-token ci`,
		Args: cobra.ArbitraryArgs, Complete: command.CompleteKindThenNames(a, deletable),
		Run: func(ctx context.Context, args []string) error { return runDelete(ctx, a, o, args) },
	})
	o.selection.InstanceFlags(a, cmd)
	cmd.Flags().BoolVar(&o.discardData, "discard-data", false, "delete a node although it has data of static instances")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until they are gone")
	return cmd
}

func runDelete(ctx context.Context, a *app.App, o *deleteOptions, args []string) error {
	kind, names, err := deleteTargets(o, args)
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	if kind.Name == "instance" && (len(names) != 1 || o.selection.DryRun) {
		r := &instanceRun{app: a, client: client, verb: instanceVerb{name: "delete", bulk: "delete", doing: "is deleted"}, options: &instanceOptions{selection: o.selection}}
		return r.bulk(ctx)
	}
	d := &deletion{app: a, client: client, kind: kind, options: o}
	return d.all(ctx, names)
}

// deleteTargets returns the kind and the names, after it checked them and the flags.
func deleteTargets(o *deleteOptions, args []string) (*kinds.Kind, []string, error) {
	if len(args) == 0 {
		return nil, nil, command.UsageError("for example: orrery delete group lobby", "delete needs a kind and a name")
	}
	kind, names, err := command.KindAndNames(args)
	if err != nil {
		return nil, nil, err
	}
	if !kind.Deletable {
		hint := "the kinds that can be deleted are " + strings.Join(kinds.Names(deletable), ", ")
		if kind.Name == "artifact" {
			hint = "orrery catalog rm PLATFORM VERSION removes a version from the catalog"
		}
		return nil, nil, command.UsageError(hint, "%s cannot be deleted", kind.Plural)
	}
	switch {
	case o.selection.ByFlags() && kind.Name != "instance":
		return nil, nil, command.UsageError("name them", "only instances can be selected by flags, not %s", kind.Plural)
	case o.discardData && kind.Name != "node":
		return nil, nil, command.UsageError("", "--discard-data is for nodes, not for %s", kind.Plural)
	case o.wait && (o.selection.ByFlags() || o.selection.DryRun):
		return nil, nil, command.UsageError("", "--wait needs names, and no --dry-run")
	}
	return kind, names, o.selection.Take(kind, names)
}

// deletion is one run of delete.
type deletion struct {
	app     *app.App
	client  *orrery.Client
	kind    *kinds.Kind
	options *deleteOptions
}

// all deletes objects one after the other, or shows what that would do.
func (d *deletion) all(ctx context.Context, names []string) error {
	done, err := onEach(ctx, d.app, &d.options.selection, names, d.one)
	if followErr := d.follow(ctx, done); followErr != nil {
		return followErr
	}
	return err
}

// one deletes an object, or asks what that would do. It returns the answer and what to tell people.
func (d *deletion) one(ctx context.Context, name string) (answer any, lines []string, err error) {
	id, err := app.Resolve(ctx, d.client, d.kind, name)
	if err != nil {
		return nil, nil, err
	}
	if d.options.selection.DryRun {
		return d.dryRun(ctx, name, id)
	}
	text := fmt.Sprintf("%s %s is deleted", d.kind.Name, name)
	if d.kind.Name == "group" {
		text += d.stops(ctx, id)
	}
	row, err := app.Delete(ctx, d.client, d.kind, id, d.query())
	if err != nil {
		return nil, nil, d.explain(ctx, err, id)
	}
	if row == nil {
		return map[string]any{"id": id, d.kind.NameField: id, "deleted": true}, []string{text}, nil
	}
	return row, []string{text}, nil
}

func (d *deletion) query() url.Values {
	if !d.options.discardData {
		return nil
	}
	return url.Values{"discardData": {"true"}}
}

// stops says which instances of a group stop when it is deleted; nothing if the server does not say.
func (d *deletion) stops(ctx context.Context, group string) string {
	planned, err := d.client.DeleteGroupDryRun(ctx, group, nil)
	if err != nil || len(planned.Stop) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s: %s", stopping(len(planned.Stop)), command.FirstNames(planned.Stop))
}

func stopping(n int) string {
	if n == 1 {
		return "its instance stops"
	}
	return fmt.Sprintf("its %d instances stop", n)
}

// explain adds the next step to a refused deletion.
func (d *deletion) explain(ctx context.Context, err error, id string) error {
	if !errors.Is(err, orrery.ErrConflict) {
		return err
	}
	switch d.kind.Name {
	case "instance":
		return exit.Hint(err, "orrery stop "+id+" --wait")
	case "node":
		planned, dryErr := d.client.DeleteNodeDryRun(ctx, id, nil)
		if dryErr == nil && planned.NeedsDiscardData {
			return exit.Hint(err, "--discard-data deletes the node although its data is lost; --dry-run lists that data")
		}
	}
	return err
}

// dryRun shows what a deletion would do. For a kind without a dry run it only reads the object.
func (d *deletion) dryRun(ctx context.Context, name, id string) (any, []string, error) {
	lines := []string{fmt.Sprintf("%s %s would be deleted", d.kind.Name, name)}
	if d.kind.NoDeleteDryRun {
		row, _, err := app.Get(ctx, d.client, d.kind, "", id)
		return row, lines, err
	}
	query := url.Values{"dryRun": {"true"}}
	row, err := app.Delete(ctx, d.client, d.kind, id, query)
	if err != nil {
		return nil, nil, d.explain(ctx, err, id)
	}
	if row == nil {
		return map[string]any{"id": id, "dryRun": true}, lines, nil
	}
	return row, append(lines, consequences(row)...), nil
}

// consequences lists what the dry run of a deletion says.
func consequences(row output.Row) []string {
	var lines []string
	if stop := gjson.GetBytes(row, "stop").Array(); len(stop) > 0 {
		var names []string
		for _, name := range stop {
			names = append(names, name.String())
		}
		lines = append(lines, stopping(len(names))+": "+strings.Join(names, ", "))
	}
	for _, group := range gjson.GetBytes(row, "affectedGroups").Array() {
		lines = append(lines, "group "+group.String()+" changes")
	}
	for _, data := range gjson.GetBytes(row, "data").Array() {
		size := "of unknown size"
		if bytes := data.Get("bytes"); bytes.Type == gjson.Number {
			size = kinds.Size(bytes.Int())
		}
		lines = append(lines, fmt.Sprintf("the data of static instance %s is lost: %s", data.Get("name"), size))
	}
	if gjson.GetBytes(row, "needsDiscardData").Bool() {
		lines = append(lines, "it needs --discard-data")
	}
	for _, note := range gjson.GetBytes(row, "notes").Array() {
		lines = append(lines, note.String())
	}
	if message := gjson.GetBytes(row, "message").String(); message != "" {
		lines = append(lines, message)
	}
	return lines
}

// follow waits until deleted objects are gone, if --wait was given. Instances and tokens are gone at once, and another
// one may have their name.
func (d *deletion) follow(ctx context.Context, names []string) error {
	if !d.options.wait || len(names) == 0 || d.kind.Name == "instance" || d.kind.Title != "" {
		return nil
	}
	o := progress.Options{Goal: "gone", Afterwards: "the deletion continues on the server"}
	for _, name := range names {
		o.Targets = append(o.Targets, progress.Target{Kind: d.kind, Name: name, Until: progress.Deleted()})
	}
	return waitAll(ctx, d.app, d.client, o)
}
