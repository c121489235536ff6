package diagnosis

import (
	"context"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func simulate(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "simulate", Short: "Show what the scheduler would do, and change nothing",
		Example: `orrery simulate place lobby --count 5
orrery simulate drain node-1
orrery simulate lose node-1
orrery simulate move survival-1 --to node-2`,
	})
	cmd.AddCommand(
		simulatePlace(a),
		simulateNode(a, "drain", "Show where the instances of a node would go if it took no more", func(node string) *orrery.SimulationRequest {
			return &orrery.SimulationRequest{Drain: &orrery.DrainSimulationRequest{Node: node}}
		}),
		simulateNode(a, "lose", "Show what would happen if a node were lost", func(node string) *orrery.SimulationRequest {
			return &orrery.SimulationRequest{Lose: &orrery.NodeSimulationRequest{Node: node}}
		}),
		simulateMove(a),
	)
	return cmd
}

func simulatePlace(a *app.App) *cobra.Command {
	count := int64(1)
	cmd := command.New(a, command.Spec{
		Use: "place [group] NAME --count NUMBER", Short: "Show where new instances of a group would go",
		Example: "orrery simulate place lobby --count 5",
		Args:    command.Between(1, 2, "the name of a group"), Complete: command.CompleteTargets(a, "group"),
		Run: func(ctx context.Context, args []string) error {
			_, name, err := command.One(args, "group")
			if err != nil {
				return err
			}
			return runSimulation(ctx, a, "group", name, func(context.Context, *orrery.Client) (*orrery.SimulationRequest, error) {
				return &orrery.SimulationRequest{Place: &orrery.PlaceSimulationRequest{Group: name, Count: count}}, nil
			})
		},
	})
	command.Number(cmd.Flags(), &count, "count", 1, "`number` of instances")
	command.CompleteFlag(cmd, "count", cobra.NoFileCompletions)
	return cmd
}

func simulateNode(a *app.App, verb, short string, request func(node string) *orrery.SimulationRequest) *cobra.Command {
	return command.New(a, command.Spec{
		Use: verb + " [node] NAME", Short: short,
		Example: "orrery simulate " + verb + " node-1",
		Args:    command.Between(1, 2, "the name of a node"), Complete: command.CompleteTargets(a, "node"),
		Run: func(ctx context.Context, args []string) error {
			_, name, err := command.One(args, "node")
			if err != nil {
				return err
			}
			return runSimulation(ctx, a, "node", name, func(context.Context, *orrery.Client) (*orrery.SimulationRequest, error) {
				return request(name), nil
			})
		},
	})
}

func simulateMove(a *app.App) *cobra.Command {
	var to string
	cmd := command.New(a, command.Spec{
		Use: "move [instance] NAME", Short: "Show where a static instance would go",
		Example: "orrery simulate move survival-1 --to node-2",
		Args:    command.Between(1, 2, "the name of an instance"), Complete: command.CompleteTargets(a, "instance"),
		Run: func(ctx context.Context, args []string) error {
			_, name, err := command.One(args, "instance")
			if err != nil {
				return err
			}
			return runSimulation(ctx, a, "instance", name, func(ctx context.Context, client *orrery.Client) (*orrery.SimulationRequest, error) {
				return moveRequest(ctx, client, name, to)
			})
		},
	})
	cmd.Flags().StringVar(&to, "to", "", "`name` of the new node; without it the scheduler chooses")
	command.CompleteFlag(cmd, "to", command.CompleteNames(a, "node"))
	return cmd
}

// moveRequest names the instance by its uid, which the simulation needs.
func moveRequest(ctx context.Context, client *orrery.Client, name, to string) (*orrery.SimulationRequest, error) {
	instance, err := client.GetInstance(ctx, name)
	if err != nil {
		return nil, err
	}
	move := &orrery.MoveSimulationRequest{Instance: instance.UID}
	if to != "" {
		move.Node = &to
	}
	return &orrery.SimulationRequest{Move: move}, nil
}

func runSimulation(ctx context.Context, a *app.App, kind, name string, request func(context.Context, *orrery.Client) (*orrery.SimulationRequest, error)) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	var s *orrery.Simulation
	body, err := request(ctx, client)
	if err == nil {
		s, err = client.CreateSimulation(ctx, body)
	}
	if err != nil {
		return command.NotFound(ctx, client, err, kind, name)
	}
	return a.Show(s, name, func(p output.Printer) error { return showSimulation(a, p, s) })
}

var effectColumns = []output.Column{
	{Header: "INSTANCE", Path: "name"},
	{Header: "GROUP", Path: "group", Wide: true},
	{Header: "REPLACES", Path: "replaces"},
	{Header: "EFFECT", Path: "effect"},
	{Header: "FROM", Path: "from"},
	{Header: "NODE", Path: "node"},
	{Header: "PORT", Path: "port"},
	{Header: "SCORE", Path: "score.total", Wide: true},
	{Header: "MESSAGE", Path: "message"},
}

func showSimulation(a *app.App, p output.Printer, s *orrery.Simulation) error {
	if err := a.Linef("%d placed, %d would wait, %d kept, %d stopped", s.Placed, s.Pending, s.Kept, s.Stopped); err != nil {
		return err
	}
	if len(s.Instances) > 0 {
		rows, err := app.Rows(s.Instances)
		if err != nil {
			return err
		}
		if err := p.List(effectColumns, "name", rows); err != nil {
			return err
		}
	}
	for _, w := range s.Unfit {
		if err := a.Linef("\n%s of group %s would wait: %s", output.Counted(w.Instances, "instance"), w.Group, w.Message); err != nil {
			return err
		}
		for _, lost := range w.Lost {
			if err := a.Linef("  %s excludes %s: %s", lost.Filter, output.Counted(lost.Nodes, "node"), lost.Fix); err != nil {
				return err
			}
		}
	}
	return a.Lines(app.Notes(s.Notes))
}
