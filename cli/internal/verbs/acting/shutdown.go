package acting

import (
	"context"
	"fmt"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func shutdown(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "shutdown", Short: "Shut down the agents of nodes, or a gateway",
		Example: `orrery shutdown node node-1 --dry-run
orrery shutdown gateway --yes`,
	})
	cmd.AddCommand(shutdownNode(a), shutdownGateway(a))
	return cmd
}

// shutdownOptions are the flags of shutdown node.
type shutdownOptions struct {
	selection command.Selection
	reason    string
	wait      bool
}

func shutdownNode(a *app.App) *cobra.Command {
	o := &shutdownOptions{}
	cmd := command.New(a, command.Spec{
		Use: "node NAME...", Short: "Shut down the agents of nodes and their instances",
		Long: `Each instance stops as its group says, then the agent ends. Instances of groups that may run on other nodes start there.
To start those first and move players, use orrery drain --shutdown. The agent itself is started on its machine.
A standalone ends as a whole.`,
		Example: `orrery shutdown node node-1 --dry-run
orrery shutdown node node-1 --yes --reason 'new disks' --wait`,
		Args: cobra.ArbitraryArgs, Complete: command.CompleteNames(a, "node"),
		Run: func(ctx context.Context, args []string) error { return runShutdownNode(ctx, a, o, args) },
	})
	o.selection.NodeFlags(a, cmd)
	cmd.Flags().StringVar(&o.reason, "reason", "", "`text` for the audit and the logs of the agents")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until they are offline")
	command.CompleteFlag(cmd, "reason", cobra.NoFileCompletions)
	return cmd
}

func runShutdownNode(ctx context.Context, a *app.App, o *shutdownOptions, args []string) error {
	s := &o.selection
	client, names, err := selectedNodes(ctx, a, s, args, "shut down")
	if err != nil || len(names) == 0 {
		return err
	}
	if !s.ByFlags() && !s.DryRun && !s.Yes {
		if err := a.Confirm("shut down "+s.Describe(kinds.Get("node"), names)+" and what runs there?", "--yes"); err != nil {
			return err
		}
	}
	done, err := onEach(ctx, a, s, names, func(ctx context.Context, name string) (any, []string, error) {
		answer, text, err := o.one(ctx, client, name)
		return answer, []string{text}, command.NotFound(ctx, client, err, "node", name)
	})
	if o.wait && !s.DryRun && len(done) > 0 {
		w := progress.Options{Goal: "offline", Afterwards: "the shutdown continues"}
		for _, name := range done {
			w.Targets = append(w.Targets, progress.Target{Kind: kinds.Get("node"), Name: name, Until: progress.Offline()})
		}
		if err := waitAll(ctx, a, client, w); err != nil {
			return err
		}
	}
	return err
}

// one shuts a node down, or shows what that would do.
func (o *shutdownOptions) one(ctx context.Context, client *orrery.Client, name string) (any, string, error) {
	request := &orrery.ShutdownNodeRequest{}
	if o.reason != "" {
		request.Reason = &o.reason
	}
	if !o.selection.DryRun {
		answer, err := client.ShutdownNode(ctx, name, request)
		return answer, "node " + name + " shuts down", err
	}
	answer, err := client.ShutdownNodeDryRun(ctx, name, request)
	if err != nil {
		return nil, "", err
	}
	text := "node " + name + " would shut down"
	if node, err := client.GetNode(ctx, name); err == nil { // the answer itself does not name what runs there
		text += " with " + output.Counted(node.InstanceCount, "instance")
	}
	return answer, text, nil
}

func shutdownGateway(a *app.App) *cobra.Command {
	var yes, dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "gateway", Short: "Shut down the gateway that answers",
		Long: `It ends one replica: the one that answers, so name it with --server if there are several. Clients continue at another one.
A standalone ends as a whole.`,
		Example: `orrery shutdown gateway --dry-run
orrery shutdown gateway --yes`,
		Run: func(ctx context.Context, _ []string) error { return runShutdownGateway(ctx, a, yes, dryRun) },
	})
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	command.DryRunFlag(a, cmd, &dryRun)
	return cmd
}

func runShutdownGateway(ctx context.Context, a *app.App, yes, dryRun bool) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	planned, err := client.ShutdownGatewayDryRun(ctx)
	switch {
	case err != nil:
		return err
	case dryRun:
		return a.Say(planned, planned.Replica, "gateway %s would shut down", planned.Replica)
	case !yes:
		if err := a.Confirm(fmt.Sprintf("shut down gateway %s?", planned.Replica), "--yes"); err != nil {
			return err
		}
	}
	answer, err := client.ShutdownGateway(ctx)
	if err != nil {
		return err
	}
	return a.Say(answer, answer.Replica, "gateway %s shuts down", answer.Replica)
}
