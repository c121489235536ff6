package diagnosis

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/verbs/reading"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// shownByDefault is how many entries history and audit show.
const shownByDefault = 20

func history(a *app.App) *cobra.Command {
	var number int
	var at string
	cmd := command.New(a, command.Spec{
		Use: "history KIND NAME", Short: "Show who changed what and when, the newest change last",
		Long: `The kinds are ` + strings.Join(kinds.Names(hasHistory), ", ") + `.
--at shows the object as it was at a revision or a time.`,
		Example: `orrery history group lobby
orrery history group lobby -n 100
orrery history group lobby --at 2h
orrery history group lobby --at 4711`,
		Args: command.Between(2, 2, "a kind and a name, for example group lobby"), Complete: command.CompleteKindThenNames(a, hasHistory),
		Run: func(ctx context.Context, args []string) error { return runHistory(ctx, a, number, at, args) },
	})
	numberFlag(cmd, &number, shownByDefault, "changes")
	cmd.Flags().StringVar(&at, "at", "", "`revision` or time, for example 4711, 2h or 2026-01-31T15:04:05Z")
	command.CompleteFlag(cmd, "at", cobra.NoFileCompletions)
	return cmd
}

func hasHistory(kind *kinds.Kind) bool { return kind.HistoryName != "" }

func runHistory(ctx context.Context, a *app.App, number int, at string, args []string) error {
	kind, err := command.KindOf(args[0])
	if err != nil {
		return err
	}
	if !hasHistory(kind) {
		return command.UsageError("the kinds are "+strings.Join(kinds.Names(hasHistory), ", ")+"; orrery audit has all changes", "%s have no history", kind.Plural)
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	if at != "" {
		return showObjectAt(ctx, a, client, kind, args[1], at)
	}
	entries, err := lastChanges(ctx, client, kind, args[1], number)
	if err != nil {
		return command.NotFound(ctx, client, err, kind.Name, args[1])
	}
	return showChanges(a, entries)
}

// historyPage is the largest page of a history.
const historyPage = 100

// lastChanges returns the newest changes of an object, oldest first. It requests no more pages than it needs.
func lastChanges(ctx context.Context, client *orrery.Client, kind *kinds.Kind, name string, number int) ([]orrery.HistoryEntry, error) {
	var entries []orrery.HistoryEntry
	size := min(number, historyPage)
	for page := 1; len(entries) < number; page++ {
		query := url.Values{"page": {strconv.Itoa(page)}, "pageSize": {strconv.Itoa(size)}}
		var answer orrery.Page[orrery.HistoryEntry]
		if err := client.Call(ctx, orrery.Request{Method: http.MethodGet, Path: kind.HistoryPath(name), Query: query}, &answer); err != nil {
			return nil, err
		}
		entries = append(entries, answer.Data...)
		if len(answer.Data) == 0 || len(entries) >= answer.Total {
			break
		}
	}
	entries = entries[:min(len(entries), number)]
	slices.Reverse(entries)
	return entries, nil
}

var historyColumns = []output.Column{
	{Header: "REVISION", Path: "revision"},
	{Header: "TIME", Path: "at", Text: kinds.MomentCell},
	{Header: "BY", Path: "by"},
	{Header: "ACTION", Path: "action"},
	{Header: "DETAILS", Path: "details"},
}

func showChanges(a *app.App, entries []orrery.HistoryEntry) error {
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	if !printer.Format.ForPeople() {
		rows, err := app.Rows(entries)
		if err != nil {
			return err
		}
		return printer.List(historyColumns, "revision", rows)
	}
	for _, e := range entries {
		if err := a.Linef("%s", changeTitle(e)); err != nil {
			return err
		}
		for _, change := range e.Diff {
			if err := a.Linef("  %s", output.Change(change.Field, change.From, change.To)); err != nil {
				return err
			}
		}
		if e.Truncated {
			if err := a.Linef("  the change was too large to be recorded"); err != nil {
				return err
			}
		}
	}
	return nil
}

func changeTitle(e orrery.HistoryEntry) string {
	title := fmt.Sprintf("%s  revision %d  %s  %s", kinds.Moment(e.At), e.Revision, e.By, e.Action)
	if e.Details != "" {
		title += "  (" + e.Details + ")"
	}
	return title
}

// showObjectAt prints an object as it was.
func showObjectAt(ctx context.Context, a *app.App, client *orrery.Client, kind *kinds.Kind, name, at string) error {
	if _, err := strconv.ParseInt(at, 10, 64); err != nil {
		moment, err := command.ParseTime("--at", at, time.Now())
		if err != nil {
			return err
		}
		at = moment.UTC().Format(time.RFC3339)
	}
	var was orrery.HistoricalObject
	request := orrery.Request{Method: http.MethodGet, Path: kind.HistoryPath(name), Query: url.Values{"at": {at}}}
	if err := client.Call(ctx, request, &was); err != nil {
		return command.NotFound(ctx, client, err, kind.Name, name)
	}
	return a.Show(was, name, func(p output.Printer) error {
		if err := a.Linef("%s", stateTitle(was)); err != nil {
			return err
		}
		row, err := app.Row(was.Object)
		if err != nil {
			return err
		}
		return reading.Fields(a.Out, p.Style, row, kind)
	})
}

func stateTitle(was orrery.HistoricalObject) string {
	title := was.Kind + " " + was.Name
	if was.Revision == nil || was.At == nil || was.By == nil || was.Action == nil {
		return title + ", last changed before the audit begins"
	}
	return fmt.Sprintf("%s, as %s left it at %s with %s (revision %d)", title, *was.By, kinds.Moment(*was.At), *was.Action, *was.Revision)
}
