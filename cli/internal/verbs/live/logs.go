package live

import (
	"context"
	"regexp"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// defaultLines is how many lines logs begins with.
const defaultLines = 100

// logsOptions are the flags of logs.
type logsOptions struct {
	selection
	follow, previous, timestamps, prefix bool
	lines                                int
	since, until, grep                   string
	// level is for the logs of Orrery itself.
	level string
	// from, to and pattern are the parsed values; they are zero without the flag.
	from, to time.Time
	pattern  *regexp.Regexp
}

func logs(a *app.App) *cobra.Command {
	o := logsOptions{lines: defaultLines}
	cmd := command.New(a, command.Spec{
		Use:   "logs [instance] NAME... | node NODE | system",
		Short: "Print what servers wrote, and follow it",
		Long: `Several servers, and those that flags select, are shown together with the name before each line. With -f, servers of the
selection that start later are shown too, at most 64 at once. logs node NODE is the log of the agent of a node, and
logs system that of the gateway.

-f continues after restarts of the gateway and the agent without losing or repeating a line, and ends when the server
does. The times of stored lines are exact to a second; a line that is printed while you follow has the time at which it
arrived.`,
		Example: `orrery logs lobby-1
orrery logs lobby-1 -f
orrery logs lobby-1 --since 10m --grep 'joined|left'
orrery logs -f --group lobby
orrery logs lobby-1 --previous
orrery logs node node-1 -f
orrery logs system --level WARN`,
		Complete:    command.CompleteTargets(a, "instance", "node"),
		Args:        command.Between(0, -1, ""),
		FollowFlags: []string{"-f", "--follow"},
		OnlyText:    true,
		Run:         func(ctx context.Context, args []string) error { return runLogs(ctx, a, o, args) },
	})
	o.selection.flags(a, cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&o.follow, "follow", "f", false, "print new lines too, until the server ends")
	command.NumberP(flags, &o.lines, "lines", "n", -1, "`number` of lines to begin with, counted from the end; -1 prints all")
	flags.StringVar(&o.since, "since", "", "only lines from this `time` on, for example 10m, 7d or 2026-01-31T15:04:05Z")
	flags.StringVar(&o.until, "until", "", "only lines up to this `time`")
	flags.StringVar(&o.grep, "grep", "", "only lines that match this `expression` (RE2)")
	flags.BoolVar(&o.timestamps, "timestamps", false, "print the time before each line")
	flags.BoolVar(&o.prefix, "prefix", false, "print the name before each line, also for one server")
	flags.BoolVarP(&o.previous, "previous", "p", false, "the server that had this name before")
	flags.StringVar(&o.level, "level", "", "for node and system: the lowest `level`, DEBUG, INFO, WARN or ERROR")
	for _, flag := range []string{"lines", "since", "until", "grep"} {
		command.CompleteFlag(cmd, flag, cobra.NoFileCompletions)
	}
	command.CompleteFlag(cmd, "level", cobra.FixedCompletions([]string{"DEBUG", "INFO", "WARN", "ERROR"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runLogs(ctx context.Context, a *app.App, o logsOptions, args []string) error {
	if err := o.parse(time.Now()); err != nil {
		return err
	}
	if len(args) == 1 && args[0] == "system" {
		return systemLogs(ctx, a, o, "")
	}
	kind, names, err := command.Targets(args, "instance", "node")
	if err != nil {
		return err
	}
	if kind.Name == "node" {
		if len(names) != 1 {
			return command.UsageError("orrery logs node node-1", "logs node needs the name of one node")
		}
		return systemLogs(ctx, a, o, names[0])
	}
	if o.level != "" {
		return command.UsageError("use --grep", "--level is for the logs of a node and of the system, not of servers")
	}
	return instanceLogs(ctx, a, o, names)
}

// parse checks the flags and sets the parsed values.
func (o *logsOptions) parse(now time.Time) (err error) {
	for _, flag := range []struct {
		name, text string
		into       *time.Time
	}{{"--since", o.since, &o.from}, {"--until", o.until, &o.to}} {
		if flag.text == "" {
			continue
		}
		if *flag.into, err = command.ParseTime(flag.name, flag.text, now); err != nil {
			return err
		}
	}
	if o.follow && o.until != "" {
		return command.UsageError("leave out one of them", "-f and --until cannot be combined")
	}
	if o.grep != "" {
		if o.pattern, err = regexp.Compile(o.grep); err != nil {
			return command.UsageError("", "--grep: %w", err)
		}
	}
	return nil
}

// instanceLogs prints the output of instances.
func instanceLogs(ctx context.Context, a *app.App, o logsOptions, names []string) error {
	if err := o.selection.take(names); err != nil {
		return err
	}
	if o.previous && (o.follow || o.byFlags()) {
		return command.UsageError("orrery logs lobby-1 --previous", "--previous takes names and does not follow")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	out := newPrinter(a, o)
	if o.follow && o.byFlags() {
		err = followSelection(ctx, a, client, o, out)
	} else {
		err = namedLogs(ctx, a, client, o, out)
	}
	if flushed := out.flush(); flushed != nil {
		return flushed
	}
	return err
}

// namedLogs prints the output of the instances that are selected now.
func namedLogs(ctx context.Context, a *app.App, client *orrery.Client, o logsOptions, out *printer) error {
	found, err := o.selection.find(ctx, client)
	if err != nil {
		return err
	}
	if o.previous {
		for i := range found {
			if found[i], err = previous(ctx, client, found[i]); err != nil {
				return err
			}
		}
	}
	if len(found) == 0 {
		a.Notef("no server is selected")
		return nil
	}
	out.prefixes = o.prefix || len(found) > 1
	if o.follow {
		return followAll(ctx, a, client, o, out, found)
	}
	for _, i := range found {
		if err := printStored(ctx, client, o, i.uid, 0, out.named(i.name)); err != nil {
			return err
		}
	}
	return nil
}
