package command

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/compat/universe"
	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
)

func (*Interpreter) configCommands() []command {
	see := []auth.Permission{auth.GroupsView}
	return []command{
		{name: "config list", about: "list the configurations", needs: see, run: listConfigs},
		{name: "config show", args: []string{"<name>"}, about: "show a configuration as the API returns it", needs: see, run: showConfig},
		{name: "config create", args: []string{"<name>", "<runtime>", "<command…>"}, about: "create a configuration; all other fields have their defaults", needs: []auth.Permission{auth.GroupsCreate}, changes: true, run: createConfig},
		{name: "config reload", about: "read the template directory and all sources again, and wait for the result", needs: []auth.Permission{auth.SystemSettings}, changes: true, run: reload},
	}
}

func listConfigs(_ context.Context, c *call) error {
	rows := [][]string{{"NAME", "RUNTIME", "RAM", "CPU", "MINIMUM", "LIVING", ""}}
	for name, g := range c.snapshot.Groups.All() {
		if g.Deleting {
			continue
		}
		living, mark := 0, ""
		for i := range c.snapshot.GroupInstances(name) {
			if i.Living(g.Spec.KeepsLost()) {
				living++
			}
		}
		if g.Spec.Static.Enabled {
			mark = "[STATIC]"
		}
		s := g.Spec
		rows = append(rows, []string{string(name), string(s.Runtime), strconv.Itoa(s.Resources.MemoryMiB), strconv.Itoa(s.Resources.CPU), strconv.Itoa(s.Scaling.Min), strconv.Itoa(living), mark})
	}
	if len(rows) == 1 {
		return c.say("there are no configurations")
	}
	return c.table(rows)
}

func showConfig(_ context.Context, c *call) error {
	g, ok := c.snapshot.Groups.Get(fleet.GroupName(c.arg(0)))
	if !ok || g.Deleting {
		return errs.New(errs.NotFound, "there is no configuration %s: config list shows them", clip(c.arg(0)))
	}
	shown := universe.ConfigurationOf(g)
	concealed := compose.Conceal(g, c.snapshot.Definers().Of(g.Name, c.snapshot.Whole(g).Spec))
	shown.Properties = compose.MaskValues(g.Spec.Variables, concealed, c.Who.Shown())
	if !c.Who.Can(auth.GroupsEnv) {
		shown.EnvironmentVariables = nil
	}
	text, err := json.MarshalIndent(shown, "", "  ")
	if err != nil {
		return errs.WrapAs(errs.Internal, "command.showConfig", err)
	}
	for line := range strings.Lines(string(text)) {
		if err := c.say("%s", strings.TrimRight(line, "\n")); err != nil {
			return err
		}
	}
	return nil
}

func createConfig(ctx context.Context, c *call) error {
	out, err := c.cfg.Operations.WriteGroup(ctx, c.By, groupops.GroupWrite{
		Name: fleet.GroupName(c.arg(0)), Mode: groupops.Create, FreeValues: true, Shown: c.Who.Shown(),
		Make: func(*fleet.GroupSpec) (fleet.GroupSpec, error) {
			return universe.NewConfiguration(c.arg(1), unquoted(c.arg(2)))
		},
	})
	if err != nil {
		return err
	}
	return c.say("configuration %s is created; its minimum is %d", out.After.Name, out.After.Spec.Scaling.Min)
}

func reload(ctx context.Context, c *call) error {
	out, err := c.cfg.Sources.Reload(ctx, c.By)
	if err != nil {
		return err
	}
	if err := c.say("%s", out.Message()); err != nil {
		return err
	}
	for _, list := range []struct {
		what  string
		names []string
	}{{"configuration", out.Groups}, {"template", out.Templates}, {"problem:", out.Problems}} {
		for _, name := range list.names {
			if err := c.say("  %s %s", list.what, name); err != nil {
				return err
			}
		}
	}
	return nil
}
