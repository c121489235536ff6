package diagnosis

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// auditOptions are the flags of audit.
type auditOptions struct {
	params       orrery.ListAuditEntriesParams
	since, until string
	number       int
}

func audit(a *app.App) *cobra.Command {
	var o auditOptions
	cmd := command.New(a, command.Spec{
		Use: "audit", Short: "Show what users did, the newest entry last",
		Example: `orrery audit
orrery audit --user alice --since 1h
orrery audit --kind group --name lobby -n 100
orrery audit --class LOGIN -o wide`,
		Run: func(ctx context.Context, _ []string) error { return runAudit(ctx, a, o) },
	})
	flags := cmd.Flags()
	flags.StringVar(&o.params.User, "user", "", "only entries of this `user`")
	flags.StringVar(&o.params.Action, "action", "", "only entries with this `action`, such as group.update")
	flags.StringVar(&o.params.ResourceType, "kind", "", "only entries about objects of this `kind`")
	flags.StringVar(&o.params.ResourceID, "name", "", "only entries about the object with this `name`")
	flags.StringVar(&o.params.Class, "class", "", "only entries of this `class`: CHANGE, ACCESS, LOGIN, UNPROVEN or WORKLOAD")
	flags.StringVar(&o.since, "since", "", "only entries from this `time` on, for example 1h, 7d or 2026-01-31")
	flags.StringVar(&o.until, "until", "", "only entries before this `time`")
	numberFlag(cmd, &o.number, shownByDefault, "entries")
	command.CompleteFlag(cmd, "user", command.CompleteNames(a, "user"))
	command.CompleteFlag(cmd, "class", cobra.FixedCompletions([]string{"CHANGE", "ACCESS", "LOGIN", "UNPROVEN", "WORKLOAD"}, cobra.ShellCompDirectiveNoFileComp))
	command.NoCompletions(cmd)
	return cmd
}

func runAudit(ctx context.Context, a *app.App, o auditOptions) error {
	if err := o.check(time.Now()); err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	entries, err := lastEntries(ctx, client, o)
	if err != nil {
		return err
	}
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	if len(entries) == 0 && printer.Format.ForPeople() {
		a.Notef("no such entry")
		return nil
	}
	rows, err := app.Rows(entries)
	if err != nil {
		return err
	}
	kind := kinds.Get("audit")
	return printer.List(kind.Columns, kind.NameField, rows)
}

// check sets the times of the request.
func (o *auditOptions) check(now time.Time) error {
	for _, t := range []struct {
		flag, text string
		into       *string
	}{{"--since", o.since, &o.params.Since}, {"--until", o.until, &o.params.Until}} {
		if t.text == "" {
			continue
		}
		at, err := command.ParseTime(t.flag, t.text, now)
		if err != nil {
			return err
		}
		*t.into = at.UTC().Format(time.RFC3339)
	}
	return nil
}

// auditPage is how many entries a request asks for at most.
const auditPage = 200

// lastEntries returns the newest entries, oldest first. A cursor keeps new entries from shifting the pages.
func lastEntries(ctx context.Context, client *orrery.Client, o auditOptions) ([]orrery.AuditEntry, error) {
	var entries []orrery.AuditEntry
	params := o.params
	params.PageSize = min(o.number, auditPage)
	for len(entries) < o.number {
		page, err := client.ListAuditEntries(ctx, &params)
		if err != nil {
			return nil, err
		}
		entries = append(entries, page.Data...)
		if page.NextCursor == "" || len(page.Data) == 0 {
			break
		}
		params.Cursor = page.NextCursor
	}
	entries = entries[:min(len(entries), o.number)]
	slices.Reverse(entries)
	return entries, nil
}
