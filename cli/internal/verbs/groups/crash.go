package groups

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func crash(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "crash", Short: "Look at crashes, and end the pause after too many",
		Example: `orrery crash show 01M8GQ
orrery crash trends --window 24h
orrery crash reset lobby`,
	})
	cmd.AddCommand(crashShow(a), crashTrends(a), crashReset(a))
	return cmd
}

func crashShow(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "show ID", Short: "Show a crash with the last output of the instance",
		Long:    "orrery get crashes lists them.",
		Example: "orrery crash show 01M8GQ",
		Args:    command.Between(1, 1, "the ID of a crash"), Complete: command.CompleteNames(a, "crash"),
		Run: func(ctx context.Context, args []string) error { return runCrashShow(ctx, a, args[0]) },
	})
}

func runCrashShow(ctx context.Context, a *app.App, id string) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	c, err := client.GetCrash(ctx, id)
	if err != nil {
		return command.NotFound(ctx, client, err, "crash", id)
	}
	return a.Show(c, c.ID, func(p output.Printer) error {
		if err := p.Lines(crashLines(c)); err != nil {
			return err
		}
		title := "last output:"
		if c.LogTailTruncated {
			title = "last output, without its beginning:"
		}
		return a.Lines(append([]string{"", title}, c.LogTail...))
	})
}

func crashLines(c *orrery.CrashDetail) [][]string {
	end := c.Signal
	if c.ExitCode != nil {
		end = strings.TrimSpace(fmt.Sprintf("code %d %s", *c.ExitCode, c.Signal))
	}
	if c.Oom {
		end += " (out of memory)"
	}
	cells := [][]string{
		{"crash", c.ID},
		{"instance", c.InstanceID + " of group " + c.Group + ", run " + fmt.Sprint(c.Generation)},
		{"node", c.Node},
		{"at", kinds.Moment(c.CrashedAt)},
		{"uptime", kinds.Duration(time.Duration(c.UptimeMs) * time.Millisecond)},
		{"ended with", end},
		{"class", c.Classification},
		{"cause", c.CauseSummary},
		{"message", c.Message},
	}
	for _, line := range cells {
		line[1] = strings.ReplaceAll(output.Clean(line[1]), "\n", " ")
	}
	return slices.DeleteFunc(cells, func(line []string) bool { return line[1] == "" })
}

func crashTrends(a *app.App) *cobra.Command {
	var params orrery.GetCrashTrendsParams
	var window *string
	cmd := command.New(a, command.Spec{
		Use: "trends", Short: "Show how many crashes there were over time",
		Example: `orrery crash trends
orrery crash trends --window 7d --group lobby`,
		Run: func(ctx context.Context, _ []string) error {
			if window != nil {
				params.Window = *window
			}
			return runCrashTrends(ctx, a, &params)
		},
	})
	flags := cmd.Flags()
	command.OptionalText(flags, &window, "window", "how far to look back, as a `duration` such as 24h or 7d; at most 30d", command.ParseDuration)
	command.Number(flags, &params.Buckets, "buckets", 1, "`number` of parts of the window")
	flags.StringVar(&params.Group, "group", "", "only crashes of this `group`")
	flags.StringVar(&params.Instance, "instance", "", "only crashes of this `instance`")
	flags.StringVar(&params.Node, "node", "", "only crashes on this `node`")
	for _, kind := range []string{"group", "instance", "node"} {
		command.CompleteFlag(cmd, kind, command.CompleteNames(a, kind))
	}
	command.NoCompletions(cmd)
	return cmd
}

func runCrashTrends(ctx context.Context, a *app.App, params *orrery.GetCrashTrendsParams) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	trends, err := client.GetCrashTrends(ctx, params)
	if err != nil {
		return err
	}
	return a.Show(trends, fmt.Sprint(trends.Total), func(p output.Printer) error {
		window := kinds.Duration(time.Duration(trends.WindowSeconds) * time.Second)
		if trends.Total == 0 {
			return a.Linef("no crash in %s", window)
		}
		if err := a.Linef("%d crashes in %s: %s", trends.Total, window, counts(trends.TotalsByClassification)); err != nil {
			return err
		}
		return p.Lines(trendLines(trends.Buckets))
	})
}

// trendLines returns a line for each part of the window, with a bar relative to the highest.
func trendLines(buckets []orrery.CrashBucket) [][]string {
	most := int64(0)
	for _, b := range buckets {
		most = max(most, b.Count)
	}
	cells := make([][]string, len(buckets))
	for i, b := range buckets {
		cells[i] = []string{kinds.Moment(b.Ts), fmt.Sprint(b.Count), progress.Bar(b.Count, most), counts(b.ByClassification)}
	}
	return cells
}

func counts(byClass map[string]int64) string {
	var parts []string
	for _, class := range slices.Sorted(maps.Keys(byClass)) {
		parts = append(parts, fmt.Sprintf("%d %s", byClass[class], output.Clean(class)))
	}
	return strings.Join(parts, ", ")
}

func crashReset(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "reset [group] NAME...", Short: "End the pause of a group after too many crashes",
		Long:    "Crashes before the reset no longer count.",
		Example: "orrery crash reset lobby",
		Args:    command.Between(1, -1, "the name of a group"), Complete: command.CompleteTargets(a, "group"),
		Run: func(ctx context.Context, args []string) error { return runCrashReset(ctx, a, args) },
	})
}

func runCrashReset(ctx context.Context, a *app.App, args []string) error {
	_, names, err := command.Targets(args, "group")
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return command.UsageError("for example: orrery crash reset lobby", "crash reset needs the name of a group")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	return command.Each(ctx, a, names, func(name string) error {
		answer, err := client.ResetCrashLoop(ctx, name)
		if err != nil {
			return command.NotFound(ctx, client, err, "group", name)
		}
		if !answer.Changed {
			return a.Say(answer, name, "group %s was not paused", name)
		}
		return a.Say(answer, name, "group %s starts again", name)
	})
}
