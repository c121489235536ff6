package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func problems(a *app.App) *cobra.Command {
	var watch bool
	cmd := command.New(a, command.Spec{
		Use: "problems [KIND|NAME]", Short: "List what is wrong now, and what to do",
		Long: `The most urgent come first. With --watch it continues: it prints problems that begin and those that are over.
The exit code is 0 also if there are problems; orrery doctor fails then.`,
		Example: `orrery problems
orrery problems node
orrery problems lobby
orrery problems --watch`,
		Args: command.Between(0, 1, "a kind or a name"), Complete: completeProblemKinds,
		Run: func(ctx context.Context, args []string) error { return runProblems(ctx, a, watch, args) },
	})
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "continue and print what begins and ends")
	return cmd
}

// problemKinds are the kinds of objects that problems are about.
var problemKinds = []string{"group", "node", "service", "template-source", "declaration", "notice"}

func completeProblemKinds(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return problemKinds, cobra.ShellCompDirectiveNoFileComp
}

func runProblems(ctx context.Context, a *app.App, watch bool, args []string) error {
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	rows, err := listProblems(ctx, client, args)
	if err == nil && len(rows) == 0 && len(args) > 0 {
		err = unknownName(ctx, client, args[0])
	}
	if err != nil {
		return err
	}
	if watch {
		w := watcher{app: a, client: client, args: args, printer: printer, known: map[string]output.Row{}}
		return w.run(ctx)
	}
	kind := kinds.Get("problem")
	if !printer.Format.ForPeople() {
		return printer.List(kind.Columns, kind.NameField, rows)
	}
	for _, row := range rows {
		if err := printProblem(a, printer.Style, row); err != nil {
			return err
		}
	}
	return noteUnchecked(ctx, a, client, len(rows) == 0, args)
}

// listProblems returns the problems of a kind or name; all without arguments.
func listProblems(ctx context.Context, client *orrery.Client, args []string) ([]output.Row, error) {
	rows, err := app.List(ctx, client, kinds.Get("problem"), "", nil)
	if err != nil || len(args) == 0 {
		return rows, err
	}
	wanted := args[0]
	if kind := kinds.Find(wanted); kind != nil && slices.Contains(problemKinds, kind.Name) {
		wanted = kind.Name
	}
	return slices.DeleteFunc(rows, func(row output.Row) bool {
		return gjson.GetBytes(row, "kind").String() != wanted && gjson.GetBytes(row, "name").String() != wanted
	}), nil
}

// unknownName returns an error if a name without problems is neither a kind nor the name of an object: then it was
// mistyped. It returns nil if the user may not see enough to tell.
func unknownName(ctx context.Context, client *orrery.Client, name string) error {
	if kind := kinds.Find(name); kind != nil || slices.Contains(problemKinds, name) {
		return nil
	}
	for _, kind := range []string{"group", "node", "instance", "source", "notice"} {
		_, _, err := app.Get(ctx, client, kinds.Get(kind), "", name)
		if !errors.Is(err, orrery.ErrNotFound) {
			return nil // it exists, or the server does not tell
		}
	}
	groups, err := app.Names(ctx, client, kinds.Get("group"), "")
	if err != nil {
		return err
	}
	err = fmt.Errorf("no problem is about %q, and there is no group, node, instance, source or notice of that name", name)
	return exit.With(exit.NotFound, err, app.DidYouMean(name, groups, "orrery problems lists all problems"))
}

func printProblem(a *app.App, style output.Style, row output.Row) error {
	p := gjson.ParseBytes(row)
	line := fmt.Sprintf("%s %s: %s", p.Get("kind"), p.Get("name"), p.Get("message").String())
	if since := kinds.AgeCell(p.Get("since")); since != "" {
		line += " (since " + since + ")"
	}
	severity := strings.ToUpper(p.Get("severity").String())
	if _, err := fmt.Fprintf(a.Out, "%s %s\n", style.State(output.Clean(fmt.Sprintf("%-8s", severity))), output.Clean(line)); err != nil {
		return err
	}
	if fix := p.Get("fix").String(); fix != "" {
		return a.Linef("         %s", fix)
	}
	return nil
}

// parts are what the list of problems omits for users without a permission.
var parts = []struct{ permission, what string }{
	{"instances.view", "instances that wait for a node or cannot run"},
	{"nodes.view", "lost nodes"},
	{"cluster.view", "services that do not run"},
	{"templates.view", "failed template sources"},
	{"system.settings", "notices that cannot be delivered"},
}

// noteUnchecked says that nothing is wrong, or what the user may not see.
func noteUnchecked(ctx context.Context, a *app.App, client *orrery.Client, none bool, args []string) error {
	me, err := client.GetCurrentUser(ctx)
	if err != nil {
		return err
	}
	var hidden []string
	for _, part := range parts {
		if !slices.Contains(me.Permissions, part.permission) {
			hidden = append(hidden, fmt.Sprintf("%s (needs %s)", part.what, part.permission))
		}
	}
	about := ""
	if len(args) > 0 {
		about = " with " + args[0]
	}
	if none && len(hidden) == 0 {
		a.Notef("nothing is wrong%s", about)
		return nil
	}
	if none {
		a.Notef("nothing is wrong%s in what you may see", about)
	}
	if len(hidden) > 0 {
		a.Notef("not checked: %s", strings.Join(hidden, "; "))
	}
	return nil
}

// watcher prints problems as they begin and end.
type watcher struct {
	app     *app.App
	client  *orrery.Client
	args    []string
	printer output.Printer
	known   map[string]output.Row
}

// watchPause is the shortest time between two reads of the list, however many events there are.
const watchPause = time.Second

func (w *watcher) run(ctx context.Context) error {
	lost, connected := false, make(chan struct{}, 1)
	events, stop, err := app.Watch(ctx, w.client, orrery.EventsOptions{
		OnConnect: func() {
			lost = false
			select {
			case connected <- struct{}{}:
			default: // a read is due already
			}
		},
		OnReconnect: func(err error) {
			if !lost {
				w.app.Notef("the connection is lost: %v; it is tried again", err)
			}
			lost = true
		},
	})
	if err != nil {
		return err
	}
	defer stop()
	<-connected // the read that follows is after it
	rows, err := listProblems(ctx, w.client, w.args)
	if err == nil {
		err = w.update(rows)
	}
	if err != nil {
		return err
	}
	if err := noteUnchecked(ctx, w.app, w.client, len(rows) == 0, w.args); err != nil {
		return err
	}
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return stop()
			}
		case <-connected: // what happened meanwhile was missed
		}
		app.Drain(events)
		if err := w.read(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return stop()
		case <-time.After(watchPause):
		}
	}
}

// read reads the list again. A server that does not answer now ends nothing: the next event is soon.
func (w *watcher) read(ctx context.Context) error {
	rows, err := listProblems(ctx, w.client, w.args)
	switch {
	case errors.Is(err, orrery.ErrUnreachable), errors.Is(err, orrery.ErrUnavailable):
		w.app.Notef("%v; it is tried again", err)
		return nil
	case err != nil:
		return err
	}
	return w.update(rows)
}

// update prints what differs from the problems that are known.
func (w *watcher) update(rows []output.Row) error {
	now := map[string]output.Row{}
	for _, row := range rows {
		key := keyOf(row)
		now[key] = row
		if _, ok := w.known[key]; ok {
			continue
		}
		if err := w.print(row); err != nil {
			return err
		}
	}
	for key, row := range w.known {
		if _, ok := now[key]; ok {
			continue
		}
		w.app.Notef("over: %s %s: %s", gjson.GetBytes(row, "kind"), gjson.GetBytes(row, "name"), output.Clean(gjson.GetBytes(row, "message").String()))
	}
	w.known = now
	return nil
}

func (w *watcher) print(row output.Row) error {
	if w.printer.Format.ForPeople() {
		return printProblem(w.app, w.printer.Style, row)
	}
	kind := kinds.Get("problem")
	return w.printer.Object(kind.Columns, kind.NameField, row)
}

// keyOf tells problems apart. The message is no part of it, because it may have figures.
func keyOf(row output.Row) string {
	p := gjson.ParseBytes(row)
	return p.Get("kind").String() + "/" + p.Get("name").String() + "/" + p.Get("reason").String()
}
