package cluster

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/spf13/cobra"
)

func show(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "show [VERSION]", Short: "Show the settings",
		Long: "It shows the settings in effect and who set them: the cluster, or the gateway that answers. With a version it shows what that one sets.",
		Example: `orrery config show
orrery config show 3`,
		Args: command.Between(0, 1, "a version"),
		Run: func(ctx context.Context, args []string) error {
			if len(args) == 1 {
				return showVersion(ctx, a, args[0])
			}
			return showActive(ctx, a)
		},
	})
}

func showActive(ctx context.Context, a *app.App) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	config, err := client.GetClusterConfig(ctx)
	if err != nil {
		return err
	}
	return list(a, config, config.ActiveVersion, func(printer output.Printer) error {
		if config.ActiveVersion > 0 {
			a.Notef("version %d is active", config.ActiveVersion)
		}
		return table(printer, flat(config.Effective), flat(config.Patch), "gateway")
	})
}

func showVersion(ctx context.Context, a *app.App, text string) error {
	version, err := parseVersion(text)
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	v, err := client.GetClusterConfigVersion(ctx, strconv.FormatInt(version, 10))
	if err != nil {
		return err
	}
	return list(a, v, version, func(printer output.Printer) error {
		return table(printer, flat(v.Patch), flat(v.Patch), "")
	})
}

// list prints settings as rows for people and as CSV, and as the answer of the server in other formats.
func list(a *app.App, answer any, version int64, rows func(output.Printer) error) error {
	printer, err := a.Printer()
	if err == nil && printer.Format.Name == "csv" {
		return rows(printer)
	}
	return a.Show(answer, strconv.FormatInt(version, 10), rows)
}

// parseVersion reads the number of a version of the settings.
func parseVersion(text string) (int64, error) {
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil || version < 0 {
		return 0, command.UsageError("orrery config history lists the versions", "%q is not a version", text)
	}
	return version, nil
}

var columns = []output.Column{
	{Header: "KEY", Path: "key"},
	{Header: "VALUE", Path: "value"},
	{Header: "SET BY", Path: "by"},
}

type setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	By    string `json:"by"`
}

// table prints values by key. Those that the cluster does not set are set by otherwise.
func table(printer output.Printer, values, ofCluster map[string]any, otherwise string) error {
	var all []setting
	for _, key := range slices.Sorted(maps.Keys(values)) {
		s := setting{Key: key, By: otherwise}
		if _, has := ofCluster[key]; has {
			s.By = "cluster"
		}
		text, err := json.Marshal(values[key])
		if err != nil {
			return err
		}
		s.Value = string(text)
		all = append(all, s)
	}
	rows, err := app.Rows(all)
	if err != nil {
		return err
	}
	return printer.List(columns, "key", rows)
}

// flat returns settings by their keys. The API nests them.
func flat(nested map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range nested {
		inner, ok := value.(map[string]any)
		if !ok {
			out[name] = value
			continue
		}
		for key, value := range flat(inner) {
			out[name+"."+key] = value
		}
	}
	return out
}

func history(a *app.App) *cobra.Command {
	versions := command.Part("versions", "/api/v1/cluster/config/versions", "version", []output.Column{
		{Header: "VERSION", Path: "version"},
		{Header: "ACTIVE", Path: "isActive"},
		{Header: "PARENT", Path: "parentVersion"},
		{Header: "BY", Path: "mutator"},
		{Header: "TIME", Path: "mutatedAt", Text: kinds.MomentCell},
		{Header: "REASON", Path: "reason"},
	})
	versions.Data = "versions"
	return command.New(a, command.Spec{
		Use: "history", Short: "List the latest hundred versions of the settings",
		Example: "orrery config history",
		Run: func(ctx context.Context, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			rows, err := app.List(ctx, client, versions, "", nil)
			if err != nil {
				return err
			}
			return command.PrintRows(a, versions, rows)
		},
	})
}
