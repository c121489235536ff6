package acting

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

type sendOptions struct {
	selection command.Selection
	via       string
}

func send(a *app.App) *cobra.Command {
	o := &sendOptions{}
	cmd := command.New(a, command.Spec{
		Use: "send [flags] [instance] NAME COMMAND...", Aliases: []string{"exec", "command"},
		Short: "Send a command to the console of instances",
		Long: `Everything after the name is the command, also what looks like a flag: put flags before the name. With flags that
select instances, all arguments are the command.`,
		Example: `orrery send lobby-1 say hello
orrery send --via rcon lobby-1 list
orrery send --group lobby --yes say the server restarts in a minute`,
		Args: cobra.ArbitraryArgs, EmptyArgs: true,
		Complete: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 || o.selection.ByFlags() {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return command.CompleteNames(a, "instance")(cmd, args, toComplete)
		},
		Run: func(ctx context.Context, args []string) error { return runSend(ctx, a, o, args) },
	})
	cmd.Flags().SetInterspersed(false)
	o.selection.InstanceFlags(a, cmd)
	cmd.Flags().StringVar(&o.via, "via", "", "`way` to send it: console, or rcon to get the answer")
	command.CompleteFlag(cmd, "via", cobra.FixedCompletions([]string{"console", "rcon"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runSend(ctx context.Context, a *app.App, o *sendOptions, args []string) error {
	names, line, err := sendArguments(o, args)
	if err != nil {
		return err
	}
	if err := o.selection.Take(kinds.Get("instance"), names); err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(line) == "":
		return command.UsageError("orrery send lobby-1 say hello is an example", "send needs a command")
	case o.via != "" && o.via != "console" && o.via != "rcon":
		return command.UsageError("it is console or rcon", "--via %q is not known", o.via)
	case o.via == "rcon" && (o.selection.ByFlags() || o.selection.DryRun):
		return command.UsageError("", "--via rcon needs the name of one instance")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	if len(names) == 1 && !o.selection.DryRun {
		return sendOne(ctx, a, client, o, names[0], line)
	}
	return sendMany(ctx, a, client, o, line)
}

// sendArguments splits the arguments into the name of an instance and the command.
func sendArguments(o *sendOptions, args []string) (names []string, line string, err error) {
	if o.selection.ByFlags() || len(args) == 0 {
		return nil, strings.Join(args, " "), nil
	}
	first := 1
	if kind := kinds.Find(args[0]); kind != nil && kind.Name == "instance" && len(args) > 2 {
		first = 2
	}
	_, name, err := command.One(args[:first], "instance")
	return []string{name}, strings.Join(args[first:], " "), err
}

func sendOne(ctx context.Context, a *app.App, client *orrery.Client, o *sendOptions, name, line string) error {
	body := &orrery.SendInstanceCommandRequest{Command: line}
	if o.via != "" {
		body.Via = &o.via
	}
	answer, err := client.SendInstanceCommand(ctx, name, body)
	if err != nil {
		return app.Suggest(ctx, client, err, kinds.Get("instance"), "", name)
	}
	people, err := forPeople(a)
	if err != nil {
		return err
	}
	if !people || answer.Answer == "" {
		return report(a, answer, act{name, resultChanged, cmp.Or(answer.Answer, "sent to instance "+name)})
	}
	if answer.Incomplete {
		a.Notef("the answer is not complete")
	}
	for _, text := range strings.Split(strings.TrimRight(answer.Answer, "\r\n"), "\n") {
		if _, err := fmt.Fprintln(a.Out, output.OneLine(text)); err != nil {
			return err
		}
	}
	return nil
}

// sendMany sends a command to the instances that flags select.
func sendMany(ctx context.Context, a *app.App, client *orrery.Client, o *sendOptions, line string) error {
	r := &instanceRun{app: a, client: client, verb: instanceVerb{name: "send to", doing: "got the command"}, options: &instanceOptions{selection: o.selection}}
	request := o.selection.Instances("command")
	request.Command = &line
	request, proceed, err := r.plan(ctx, request)
	if err != nil || !proceed {
		return err
	}
	answer, err := client.UpdateInstancesInBulk(ctx, request, &orrery.UpdateInstancesInBulkParams{Parallel: o.selection.Parallel})
	if err != nil {
		return o.selection.Missing(ctx, client, unfinished(ctx, err))
	}
	failed, err := reportBulk(a, answer, r.verb.doing)
	if err != nil {
		return err
	}
	return failed.Err()
}
