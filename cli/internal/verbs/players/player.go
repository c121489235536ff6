package players

import (
	"context"
	"fmt"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func player(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "player", Short: "Show players, send them to other instances, and send them messages",
		Example: `orrery player show Alice
orrery player transfer Alice --to lobby-1
orrery player message Alice "the lobby restarts at four"`,
	})
	cmd.AddCommand(playerShow(a), playerTransfer(a), playerMessage(a))
	return cmd
}

func playerShow(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "show NAME", Short: "Show where a player is",
		Example: "orrery player show Alice",
		Args:    command.Between(1, 1, "the name or UUID of a player"), Complete: command.CompleteNames(a, "player"),
		Run: func(ctx context.Context, args []string) error { return runPlayerShow(ctx, a, args[0]) },
	})
}

func runPlayerShow(ctx context.Context, a *app.App, name string) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	kind := kinds.Get("player")
	row, _, err := app.Get(ctx, client, kind, "", name)
	if err != nil {
		return err
	}
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	return printer.Object(kind.Columns, kind.NameField, row)
}

func playerTransfer(a *app.App) *cobra.Command {
	var to, group string
	cmd := command.New(a, command.Spec{
		Use: "transfer NAME --to INSTANCE", Short: "Send a player to another instance",
		Long: "--group sends the player to the running instance of a group that has the fewest players.",
		Example: `orrery player transfer Alice --to lobby-1
orrery player transfer Alice --group lobby`,
		Args: command.Between(1, 1, "the name or UUID of a player"), Complete: command.CompleteNames(a, "player"),
		Run: func(ctx context.Context, args []string) error { return runTransfer(ctx, a, args[0], to, group) },
	})
	cmd.Flags().StringVar(&to, "to", "", "`name` of the instance")
	cmd.Flags().StringVar(&group, "group", "", "`name` of a group")
	command.CompleteFlag(cmd, "to", command.CompleteNames(a, "instance"))
	command.CompleteFlag(cmd, "group", command.CompleteNames(a, "group"))
	return cmd
}

func runTransfer(ctx context.Context, a *app.App, name, to, group string) error {
	if (to == "") == (group == "") {
		return command.UsageError("for example: orrery player transfer "+name+" --to lobby-1", "transfer needs either --to or --group")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	row, _, err := app.Get(ctx, client, kinds.Get("player"), "", name)
	if err != nil {
		return err
	}
	if group != "" {
		if to, err = emptiest(ctx, client, group); err != nil {
			return err
		}
	}
	answer, err := client.TransferPlayer(ctx, gjson.GetBytes(row, "id").String(), &orrery.TransferPlayerRequest{TargetInstanceID: to})
	if err != nil {
		return err
	}
	return a.Say(answer, name, "player %s is being sent to %s", name, to)
}

func playerMessage(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "message NAME TEXT", Short: "Send a message to a player",
		Long:    "The player's proxy shows it. A player on a server without a proxy cannot get messages.",
		Example: `orrery player message Alice "the lobby restarts at four"`,
		Args:    command.Between(2, 2, "the name or UUID of a player, and the text"), Complete: command.CompleteNames(a, "player"),
		Run: func(ctx context.Context, args []string) error { return runMessage(ctx, a, args[0], args[1]) },
	})
}

func runMessage(ctx context.Context, a *app.App, name, text string) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	row, _, err := app.Get(ctx, client, kinds.Get("player"), "", name)
	if err != nil {
		return err
	}
	answer, err := client.MessagePlayer(ctx, gjson.GetBytes(row, "id").String(), &orrery.MessagePlayerRequest{Content: text})
	if err != nil {
		return err
	}
	return a.Say(answer, name, "the message to player %s waits for their proxy", name)
}

// emptiest returns the running instance of the group that has the fewest players and room for one.
func emptiest(ctx context.Context, client *orrery.Client, group string) (string, error) {
	if _, err := client.GetGroup(ctx, group); err != nil {
		return "", command.NotFound(ctx, client, err, "group", group)
	}
	best, fewest := "", int64(0)
	for i, err := range client.AllInstances(ctx, &orrery.ListInstancesParams{Group: group, State: "RUNNING"}) {
		if err != nil {
			return "", err
		}
		if i.Warm || i.PlayerCount != nil && *i.PlayerCount >= i.MaxPlayers {
			continue
		}
		players := int64(0)
		if i.PlayerCount != nil {
			players = *i.PlayerCount
		}
		if best == "" || players < fewest {
			best, fewest = i.ID, players
		}
	}
	if best == "" {
		return "", exit.With(exit.Conflict, fmt.Errorf("no running instance of group %s has room for a player", group), "see why: orrery explain group "+group)
	}
	return best, nil
}

func network(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "network", Short: "Show networks with their groups",
		Example: "orrery network show main",
	})
	cmd.AddCommand(command.New(a, command.Spec{
		Use: "show NAME", Short: "Show the groups of a network in the order in which players reach them",
		Example: "orrery network show main",
		Args:    command.Between(1, 1, "the name of a network"), Complete: command.CompleteNames(a, "network"),
		Run: func(ctx context.Context, args []string) error { return runNetworkShow(ctx, a, args[0]) },
	}))
	return cmd
}

// networkRow is a group of a network. The fields after Group are those of the group.
type networkRow struct {
	Role        string `json:"role"`
	Group       string `json:"group"`
	Running     int64  `json:"running"`
	Players     int64  `json:"players"`
	Maintenance bool   `json:"maintenance"`
	Message     string `json:"message"`
}

var networkColumns = []output.Column{
	{Header: "ROLE", Path: "role"},
	{Header: "GROUP", Path: "group"},
	{Header: "RUNNING", Path: "running"},
	{Header: "PLAYERS", Path: "players"},
	{Header: "MAINTENANCE", Path: "maintenance"},
	{Header: "MESSAGE", Path: "message"},
}

func runNetworkShow(ctx context.Context, a *app.App, name string) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	n, err := client.GetNetwork(ctx, name)
	if err != nil {
		return command.NotFound(ctx, client, err, "network", name)
	}
	groups := map[string]orrery.Group{}
	for g, err := range client.AllGroups(ctx, nil) {
		if err != nil {
			return err
		}
		groups[g.Name] = g
	}
	rows, err := app.Rows(resolve(n, groups))
	if err != nil {
		return err
	}
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	return printer.List(networkColumns, "group", rows)
}

// resolve returns the groups of a network: proxies, the lobby, the fallbacks in their order, and the others.
func resolve(n *orrery.Network, groups map[string]orrery.Group) []networkRow {
	var rows []networkRow
	add := func(role string, names ...string) {
		for i, name := range names {
			g, ok := groups[name]
			row := networkRow{role, name, g.RunningInstances, g.TotalPlayers, g.Maintenance, g.Message}
			if role == "fallback" || role == "bedrock fallback" {
				row.Role = fmt.Sprintf("%s %d", role, i+1)
			}
			if !ok {
				row.Message = "there is no such group"
			}
			rows = append(rows, row)
		}
	}
	add("proxy", n.ProxyGroups...)
	add("lobby", n.LobbyGroup)
	add("fallback", n.FallbackGroups...)
	if n.BedrockLobbyGroup != "" {
		add("bedrock lobby", n.BedrockLobbyGroup)
	}
	add("bedrock fallback", n.BedrockFallbackGroups...)
	add("member", n.MemberGroups...)
	return rows
}
