package reading

import (
	"context"
	"iter"
	"net/url"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// getOptions are the flags of get.
type getOptions struct {
	group, node, state, filter, sortBy string
	all, watch                         bool
}

func get(a *app.App) *cobra.Command {
	var o getOptions
	cmd := command.New(a, command.Spec{
		Use: "get KIND [NAME...]", Aliases: []string{"ls", "list"},
		Short: "List objects, or show some by name",
		Long: `The kinds are ` + strings.Join(kinds.Names(nil), ", ") + `.

A filter is one or more conditions, separated by commas: field=value, !=, >, >=, <, <=, ~regexp, !~regexp.
--sort-by takes a field; a minus before it reverses the order. The fields are those of -o json.`,
		Example: `orrery get instances
orrery get instances --group lobby --sort-by -playerCount -o wide
orrery get instances --filter 'state=RUNNING,playerCount>0' -o name
orrery get groups -o jsonpath='{.items[*].name}'
orrery get nodes --watch`,
		Args:        command.Between(1, -1, "a kind, for example instances"),
		FollowFlags: []string{"--watch", "-w"},
		Complete:    command.CompleteKindThenNames(a, nil),
		Run:         func(ctx context.Context, args []string) error { return runGet(ctx, a, o, args) },
	})
	flags := cmd.Flags()
	flags.StringVar(&o.group, "group", "", "only objects of this `group`")
	flags.StringVar(&o.node, "node", "", "only objects on this `node`")
	flags.StringVar(&o.state, "state", "", "only instances in this `state`")
	flags.StringVar(&o.filter, "filter", "", "`conditions`, for example state=RUNNING,playerCount>0")
	flags.StringVar(&o.sortBy, "sort-by", "", "`field` to sort by")
	flags.BoolVar(&o.all, "all", false, "also instances that ended long ago")
	flags.BoolVarP(&o.watch, "watch", "w", false, "go on and print each object that changes")
	command.CompleteFlag(cmd, "group", command.CompleteNames(a, "group"))
	command.CompleteFlag(cmd, "node", command.CompleteNames(a, "node"))
	command.CompleteFlag(cmd, "sort-by", completeFields)
	command.CompleteFlag(cmd, "filter", completeFields)
	command.CompleteFlag(cmd, "state", cobra.NoFileCompletions)
	return cmd
}

// ps is get instances.
func ps(a *app.App) *cobra.Command {
	cmd := get(a)
	runGet := cmd.RunE
	cmd.Use, cmd.Aliases, cmd.Args = "ps [NAME...]", nil, cobra.ArbitraryArgs
	cmd.Short, cmd.Long = "List instances: the same as get instances", "List instances: the same as get instances."
	cmd.Example = "  orrery ps\n  orrery ps --group lobby"
	cmd.ValidArgsFunction = command.CompleteNames(a, "instance")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return runGet(cmd, append([]string{"instances"}, args...))
	}
	return cmd
}

// completeFields completes the fields of the kind in the arguments.
func completeFields(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 || kinds.Find(args[0]) == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return kinds.Find(args[0]).Fields(), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// query is a checked get.
type query struct {
	kind    *kinds.Kind
	names   []string
	group   string
	params  url.Values
	filter  output.Filter
	sortBy  string
	printer output.Printer
}

func runGet(ctx context.Context, a *app.App, o getOptions, args []string) error {
	q, err := parseQuery(a, o, args)
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	if o.watch {
		return watch(ctx, a, client, q)
	}
	if q.lists() && q.sortBy == "" {
		return command.PrintEach(a, q.kind, q.each(ctx, client))
	}
	rows, err := q.rows(ctx, client)
	if err != nil {
		return err
	}
	if len(q.names) == 1 || q.kind.Singleton {
		return q.printer.Object(q.kind.Columns, q.kind.NameField, rows[0])
	}
	return command.PrintRows(a, q.kind, rows)
}

func parseQuery(a *app.App, o getOptions, args []string) (*query, error) {
	kind, names, err := command.KindAndNames(args)
	if err != nil {
		return nil, err
	}
	if flag := selects(kind, o); len(names) > 0 && flag != "" {
		return nil, command.UsageError("leave out one of them", "names and %s cannot be combined", flag)
	}
	q := &query{kind: kind, names: names, group: o.group, sortBy: o.sortBy}
	if q.printer, err = a.Printer(); err != nil {
		return nil, err
	}
	if q.filter, err = output.ParseFilter("--filter", o.filter, kind.Fields()); err != nil {
		return nil, exit.With(exit.Usage, err, "")
	}
	if err := output.Sort(nil, o.sortBy, kind.Fields()); err != nil {
		return nil, exit.With(exit.Usage, err, "")
	}
	if kind.InGroup() {
		if q.group, err = command.GroupOf(a, kind, q.group); err != nil {
			return nil, err
		}
	}
	q.params, err = params(kind, o)
	return q, err
}

// selects returns a flag of o that selects objects from a list, empty without one.
func selects(kind *kinds.Kind, o getOptions) string {
	switch {
	case o.filter != "":
		return "--filter"
	case o.group != "" && !kind.InGroup():
		return "--group"
	case o.node != "":
		return "--node"
	case o.state != "":
		return "--state"
	}
	return ""
}

// params returns the query parameters of flags that the list of the kind has.
func params(kind *kinds.Kind, o getOptions) (url.Values, error) {
	values := url.Values{}
	for flag, value := range map[string]string{"group": o.group, "node": o.node, "state": o.state, "all": strconv.FormatBool(o.all)} {
		switch {
		case value == "" || value == "false" || flag == "group" && kind.InGroup():
		case !kind.TakesFilter(flag):
			return nil, command.UsageError("use --filter with a field", "%s cannot be selected by --%s", kind.Plural, flag)
		default:
			values.Set(flag, value)
		}
	}
	return values, nil
}

// lists reports whether the query reads a list, and not objects by name.
func (q *query) lists() bool { return len(q.names) == 0 && !q.kind.Singleton }

// rows returns the objects of the query.
func (q *query) rows(ctx context.Context, client *orrery.Client) ([]output.Row, error) {
	if q.lists() {
		return q.list(ctx, client)
	}
	names := q.names
	if q.kind.Singleton {
		names = []string{""}
	}
	var rows []output.Row
	for _, name := range names {
		row, _, err := app.Get(ctx, client, q.kind, q.group, name)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (q *query) list(ctx context.Context, client *orrery.Client) ([]output.Row, error) {
	rows, err := app.Collect(q.each(ctx, client))
	if err != nil {
		return nil, err
	}
	return rows, output.Sort(rows, q.sortBy, nil)
}

// each is the sequence of the objects that the flags select, in the order of the server. See app.Each.
func (q *query) each(ctx context.Context, client *orrery.Client) iter.Seq2[output.Row, error] {
	return func(yield func(output.Row, error) bool) {
		empty := true
		for row, err := range app.Each(ctx, client, q.kind, q.group, q.params) {
			empty = false
			if (err != nil || q.filter.Matches(row)) && !yield(row, err) {
				return
			}
		}
		if !empty {
			return
		}
		if err := q.missing(ctx, client); err != nil {
			yield(nil, err)
		}
	}
}

// missing returns an error if the list is empty because there is no such group or node.
func (q *query) missing(ctx context.Context, client *orrery.Client) error {
	for _, flag := range []string{"group", "node"} {
		if name := q.params.Get(flag); name != "" {
			if err := app.Missing(ctx, client, kinds.Get(flag), name); err != nil {
				return err
			}
		}
	}
	return nil
}
