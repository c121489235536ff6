package groups

import (
	"context"
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func maintenance(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "maintenance", Short: "Turn the maintenance of all groups or of one on and off",
		Long: `While it is on, no instance is started automatically, except that a node still restarts its instances in place.
Running instances stay. Servers and proxies are told, and may refuse players.`,
		Example: `orrery maintenance on --message "back at 18:00" --bypass Alice
orrery maintenance on group lobby
orrery maintenance status
orrery maintenance off`,
	})
	cmd.AddCommand(maintenanceSwitch(a, true), maintenanceSwitch(a, false), maintenanceStatus(a))
	return cmd
}

// maintenanceOptions are the flags of maintenance on and off.
type maintenanceOptions struct {
	on, dryRun bool
	message    *string
	bypass     []string
}

func maintenanceSwitch(a *app.App, on bool) *cobra.Command {
	o := maintenanceOptions{on: on}
	verb, short := "off", "Turn maintenance off"
	if on {
		verb, short = "on", "Turn maintenance on"
	}
	cmd := command.New(a, command.Spec{
		Use: verb + " [group NAME]", Short: short,
		Long:    "Without a group it is that of all groups.",
		Example: "orrery maintenance " + verb + "\norrery maintenance " + verb + " group lobby --dry-run",
		Args:    command.Between(0, 2, "group and its name"), Complete: completeGroupWord(a),
		Run: func(ctx context.Context, args []string) error { return runMaintenance(ctx, a, o, args) },
	})
	command.DryRunFlag(a, cmd, &o.dryRun)
	if on {
		command.OptionalText(cmd.Flags(), &o.message, "message", "`text` for players; the default is the one it has", nil)
		cmd.Flags().StringArrayVar(&o.bypass, "bypass", nil, "`name` of a player who may join; repeat it for more. The default is the list it has")
		command.NoCompletions(cmd)
	}
	return cmd
}

// completeGroupWord completes the word group, then names of groups.
func completeGroupWord(a *app.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return []string{"group"}, cobra.ShellCompDirectiveNoFileComp
		}
		return command.CompleteNames(a, "group")(cmd, args, toComplete)
	}
}

// groupOf returns the group in the arguments; empty without arguments. The word group must be there, so that
// a group is not mistaken for all groups.
func groupOf(args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	if len(args) == 1 && !strings.Contains(args[0], "/") {
		return "", command.UsageError("for one group: group "+args[0]+"; for all groups: no argument", "%q: what shall be in maintenance?", args[0])
	}
	_, name, err := command.One(args, "group")
	return name, err
}

func runMaintenance(ctx context.Context, a *app.App, o maintenanceOptions, args []string) error {
	group, err := groupOf(args)
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	if group != "" {
		return o.applyToGroup(ctx, a, client, group)
	}
	body := &orrery.MaintenanceFields{Enabled: &o.on, Message: o.message, Bypass: o.bypass}
	if o.dryRun {
		d, err := client.ReplaceMaintenanceDryRun(ctx, body, nil)
		if err != nil {
			return err
		}
		return a.ShowDiff(d, "maintenance", d.Diff)
	}
	answer, err := client.ReplaceMaintenance(ctx, body, nil)
	if err != nil {
		return err
	}
	return a.Say(answer, "maintenance", "maintenance of all groups is %s%s", onOff(answer.Enabled), quoted(answer.Enabled, answer.Message))
}

func (o maintenanceOptions) applyToGroup(ctx context.Context, a *app.App, client *orrery.Client, name string) error {
	patch := orrery.Patch{"maintenance": o.on}
	if o.message != nil {
		patch["maintenanceMessage"] = *o.message
	}
	if o.bypass != nil {
		patch["maintenanceBypass"] = o.bypass
	}
	if o.dryRun {
		d, err := client.UpdateGroupDryRun(ctx, name, patch, nil)
		if err != nil {
			return command.NotFound(ctx, client, err, "group", name)
		}
		return a.ShowGroupDryRun(d)
	}
	group, err := client.UpdateGroup(ctx, name, patch, nil)
	if err != nil {
		return command.NotFound(ctx, client, err, "group", name)
	}
	if !o.on {
		if all, err := client.GetMaintenance(ctx); err == nil && all.Enabled {
			a.Notef("the maintenance of all groups is still on: orrery maintenance off")
		}
	}
	return a.Say(group, name, "maintenance of group %s is %s%s", name, onOff(group.Maintenance), quoted(group.Maintenance, group.MaintenanceMessage))
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func quoted(on bool, message string) string {
	if !on || message == "" {
		return ""
	}
	return ": " + message
}

func maintenanceStatus(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "status", Short: "Show what is in maintenance",
		Example: "orrery maintenance status",
		Run:     func(ctx context.Context, _ []string) error { return runMaintenanceStatus(ctx, a) },
	})
}

// maintenanceState is the maintenance of all groups, and the groups that are in maintenance themselves.
type maintenanceState struct {
	*orrery.Maintenance
	Groups []groupMaintenance `json:"groups"`
}

type groupMaintenance struct {
	Name    string   `json:"name"`
	Message string   `json:"message"`
	Bypass  []string `json:"bypass"`
}

func runMaintenanceStatus(ctx context.Context, a *app.App) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	s := maintenanceState{Groups: []groupMaintenance{}}
	if s.Maintenance, err = client.GetMaintenance(ctx); err != nil {
		return err
	}
	for group, err := range client.AllGroups(ctx, nil) {
		if err != nil {
			return err
		}
		if group.Maintenance {
			s.Groups = append(s.Groups, groupMaintenance{group.Name, group.MaintenanceMessage, group.MaintenanceBypass})
		}
	}
	return a.Show(s, onOff(s.Enabled), func(p output.Printer) error {
		cells := [][]string{maintenanceLine("all groups", s.Enabled, s.Message, s.Bypass)}
		for _, g := range s.Groups {
			cells = append(cells, maintenanceLine("group "+g.Name, true, g.Message, g.Bypass))
		}
		return p.Lines(cells)
	})
}

func maintenanceLine(what string, on bool, message string, bypass []string) []string {
	if !on {
		return []string{what, onOff(on), ""}
	}
	text := output.Clean(message)
	if len(bypass) > 0 {
		text += output.Clean(fmt.Sprintf(" (may join: %s)", strings.Join(bypass, ", ")))
	}
	return []string{what, onOff(on), text}
}
