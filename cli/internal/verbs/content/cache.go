package content

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func cacheCommand(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "cache", Short: "Show and fill what nodes have downloaded",
		Example: `orrery cache list node-1
orrery cache warm node-1 --group lobby`,
	})
	cmd.AddCommand(cacheList(a), cacheRefresh(a), cacheWarm(a))
	return cmd
}

var cacheColumns = []output.Column{
	{Header: "NAME", Path: "name"},
	{Header: "VERSION", Path: "version"},
	{Header: "SIZE", Path: "sizeBytes", Text: kinds.SizeCell},
	{Header: "COMPLETE", Path: "complete"},
	{Header: "IN USE", Path: "inUse"},
	{Header: "LAST USED", Path: "lastUsed", Text: kinds.MomentCell},
}

func cacheList(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "list NODE", Aliases: []string{"ls"}, Short: "List the templates and software in the cache of a node",
		Example: "orrery cache list node-1",
		Args:    command.Between(1, 1, "the name of a node"), Complete: command.CompleteFirst(a, "node", nil),
		Run: func(ctx context.Context, args []string) error {
			return command.OnObject(ctx, a, "node", args[0], func(client *orrery.Client) error {
				cache, err := client.GetNodeCache(ctx, args[0])
				if err != nil {
					return err
				}
				return a.Show(cache, args[0], func(printer output.Printer) error { return showCache(a, printer, cache) })
			})
		},
	})
}

// cachedRow is a line of a list of what a cache holds.
type cachedRow struct {
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	SizeBytes int64     `json:"sizeBytes"`
	Complete  bool      `json:"complete"`
	InUse     bool      `json:"inUse"`
	LastUsed  time.Time `json:"lastUsed,omitzero"`
}

func showCache(a *app.App, printer output.Printer, cache *orrery.NodeCache) error {
	var all []cachedRow
	for _, t := range cache.Templates {
		all = append(all, cachedRow{t.Name, kinds.Version(t.Hash), t.SizeBytes, t.Complete, t.InUse, t.LastUsed})
	}
	for _, j := range cache.Jars {
		all = append(all, cachedRow{Name: j.Platform, Version: j.Version, SizeBytes: j.SizeBytes, Complete: true, LastUsed: j.LastUsed})
	}
	if len(all) == 0 {
		a.Notef("the cache is empty")
		return nil
	}
	rows, err := app.Rows(all)
	if err != nil {
		return err
	}
	a.Notef("%s of %s used", kinds.Size(cache.TotalSizeBytes), kinds.Size(cache.LimitBytes))
	return printer.List(cacheColumns, "name", rows)
}

func cacheRefresh(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "refresh NODE...", Short: "Let nodes report what their caches hold",
		Example: "orrery cache refresh node-1",
		Args:    command.Between(1, -1, "the name of a node"), Complete: command.CompleteNames(a, "node"),
		Run: func(ctx context.Context, args []string) error {
			return command.Each(ctx, a, args, func(name string) error {
				return command.OnObject(ctx, a, "node", name, func(client *orrery.Client) error {
					done, err := client.RefreshNodeCache(ctx, name)
					if err != nil {
						return err
					}
					return a.Say(done, name, "node %s reports its cache", name)
				})
			})
		},
	})
}

func cacheWarm(a *app.App) *cobra.Command {
	var templates, groups []string
	cmd := command.New(a, command.Spec{
		Use: "warm NODE...", Short: "Download template versions to nodes ahead of time",
		Long: "Without flags it downloads what all groups use.",
		Example: `orrery cache warm node-1
orrery cache warm node-1 --template lobby --group bedwars`,
		Args: command.Between(1, -1, "the name of a node"), Complete: command.CompleteNames(a, "node"),
		Run: func(ctx context.Context, args []string) error {
			return command.Each(ctx, a, args, func(name string) error {
				return command.OnObject(ctx, a, "node", name, func(client *orrery.Client) error {
					done, err := client.WarmNodeCache(ctx, name, &orrery.WarmNodeCacheRequest{Templates: templates, Groups: groups})
					if err != nil {
						return err
					}
					return printWarm(a, name, done)
				})
			})
		},
	})
	flags := cmd.Flags()
	flags.StringArrayVar(&templates, "template", nil, "`name` of a template; repeat it for more")
	flags.StringArrayVar(&groups, "group", nil, "`name` of a group whose templates are downloaded; repeat it for more")
	command.CompleteFlag(cmd, "template", command.CompleteNames(a, "template"))
	command.CompleteFlag(cmd, "group", command.CompleteNames(a, "group"))
	return cmd
}

var warmColumns = []output.Column{
	{Header: "TEMPLATE", Path: "template"},
	{Header: "VERSION", Path: "digest", Text: kinds.VersionCell},
	{Header: "STATUS", Path: "status", State: true},
	{Header: "DOWNLOADED", Path: "bytes", Text: kinds.SizeCell},
	{Header: "MESSAGE", Path: "error"},
}

// printWarm prints the result of each template, and fails if one failed.
func printWarm(a *app.App, node string, done *orrery.WarmNodeCacheResult) error {
	failed := slices.ContainsFunc(done.Templates, func(t orrery.TemplateSyncResult) bool { return t.Error != "" })
	rows, err := app.Rows(done.Templates)
	if err != nil {
		return err
	}
	err = a.Show(done, node, func(printer output.Printer) error {
		if !failed && len(rows) > 0 {
			a.Notef("node %s downloads them", node)
		}
		return command.PrintRows(a, &kinds.Kind{Plural: "templates to download", NameField: "template", Columns: warmColumns}, rows)
	})
	if err == nil && failed {
		err = errors.New("some templates were not downloaded to " + node)
	}
	return err
}
