package groups

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func schedule(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "schedule", Short: "Run schedules now, turn them on and off, and see their runs",
		Example: `orrery schedule run nightly
orrery schedule disable nightly
orrery schedule history nightly`,
	})
	cmd.AddCommand(scheduleRun(a), scheduleHistory(a))
	cmd.AddCommand(enabling(a, "schedule", reflect.TypeFor[orrery.ScheduleFields]())...)
	return cmd
}

func overlay(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "overlay", Short: "Turn overlays on and off",
		Example: "orrery overlay disable weekend",
	})
	cmd.AddCommand(enabling(a, "overlay", reflect.TypeFor[orrery.OverlayFields]())...)
	return cmd
}

func notice(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "notice", Short: "Test notices, and turn them on and off",
		Example: `orrery notice test discord
orrery notice disable discord`,
	})
	cmd.AddCommand(noticeTest(a))
	cmd.AddCommand(enabling(a, "notice", reflect.TypeFor[orrery.NoticeFields]())...)
	return cmd
}

// runOptions are the flags of schedule run.
type runOptions struct {
	body         orrery.RunScheduleRequest
	wait, dryRun bool
}

func scheduleRun(a *app.App) *cobra.Command {
	var o runOptions
	cmd := command.New(a, command.Spec{
		Use: "run NAME", Short: "Run a schedule now, also one that is turned off",
		Example: `orrery schedule run nightly --wait
orrery schedule run nightly --warn --dry-run`,
		Args: command.Between(1, 1, "the name of a schedule"), Complete: command.CompleteNames(a, "schedule"),
		Run: func(ctx context.Context, args []string) error {
			return runSchedule(ctx, a, o, args[0])
		},
	})
	command.OptionalBool(cmd.Flags(), &o.body.Warn, "warn", "send the warnings first, so that the action waits for them")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "return when the run has ended, and fail unless it is COMPLETED")
	command.DryRunFlag(a, cmd, &o.dryRun)
	cmd.MarkFlagsMutuallyExclusive("wait", "dry-run")
	return cmd
}

func runSchedule(ctx context.Context, a *app.App, o runOptions, name string) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	if o.dryRun {
		d, err := client.RunScheduleDryRun(ctx, name, &o.body)
		if err != nil {
			return command.NotFound(ctx, client, err, "schedule", name)
		}
		return a.Show(d, name, func(output.Printer) error { return a.Lines(steps(d.Run)) })
	}
	run, err := client.RunSchedule(ctx, name, &o.body)
	if err != nil {
		return command.NotFound(ctx, client, err, "schedule", name)
	}
	if o.wait {
		if run, err = awaitRun(ctx, a, client, name, run.Number); err != nil {
			return err
		}
		return a.Say(run, fmt.Sprint(run.Number), "run %d of schedule %s is %s", run.Number, name, *run.Result)
	}
	return a.Say(run, fmt.Sprint(run.Number), "run %d of schedule %s started; orrery schedule history %s shows its end", run.Number, name, name)
}

// completed is the result of a run that did all that it should.
const completed = "COMPLETED"

// awaitRun follows a schedule until a run has ended, and returns that run. It fails if the run did not complete.
func awaitRun(ctx context.Context, a *app.App, client *orrery.Client, name string, number int64) (*orrery.ScheduleRun, error) {
	var ended *orrery.ScheduleRun
	until := func(ctx context.Context, row output.Row) progress.Step {
		var s orrery.Schedule
		if err := json.Unmarshal(row, &s); err != nil {
			return progress.Step{Err: err}
		}
		switch {
		case s.Running != nil && s.Running.Number <= number, s.LastRun == nil, s.LastRun.Number < number:
			return progress.Step{Text: fmt.Sprintf("run %d is in progress", number)}
		case s.LastRun.Number == number:
			ended = s.LastRun
		default:
			var err error
			if ended, err = findRun(ctx, client, name, number); err != nil {
				return progress.Step{Err: err}
			}
		}
		if ended.Result == nil || *ended.Result != completed {
			return progress.Step{Err: incomplete(name, ended)}
		}
		return progress.Step{Done: true}
	}
	_, err := progress.One(ctx, a, client, progress.Options{
		Targets: []progress.Target{{Kind: kinds.Get("schedule"), Name: name, Until: progress.Existing(until)}}, Goal: "ended",
		Afterwards: "the run continues on the server",
	})
	return ended, err
}

// findRun returns a run from the history of a schedule.
func findRun(ctx context.Context, client *orrery.Client, name string, number int64) (*orrery.ScheduleRun, error) {
	for run, err := range client.AllScheduleRuns(ctx, name, nil) {
		if err != nil || run.Number == number {
			return &run, err
		}
	}
	return nil, exit.With(exit.Failed, fmt.Errorf("run %d of schedule %s is no longer in the history", number, name), "")
}

// incomplete is the error of a run that ended without doing all that it should.
func incomplete(name string, run *orrery.ScheduleRun) error {
	text := fmt.Sprintf("run %d of schedule %s ended", run.Number, name)
	if run.Result != nil {
		text += " as " + *run.Result
	}
	if run.Message != "" {
		text += ": " + run.Message
	}
	return exit.With(exit.Failed, errors.New(text), "orrery schedule history "+name+" lists the last runs")
}

func steps(run orrery.ScheduleRun) []string {
	var out []string
	for _, s := range run.Steps {
		line := kinds.Moment(s.At) + "  " + s.Action
		if s.Command != "" {
			line += " " + s.Command
		}
		out = append(out, line+"  ("+actsOn(s)+")")
	}
	return out
}

// actsOn says what a step acts on: instances, or a whole group or node, which have no uid.
func actsOn(s orrery.ScheduleStep) string {
	var whole []string
	for _, i := range s.Instances {
		if i.UID == nil && i.Message != "" {
			whole = append(whole, i.Name+": "+i.Message)
		}
	}
	if len(whole) > 0 {
		return strings.Join(whole, ", ")
	}
	return output.Counted(int64(len(s.Instances))+s.Omitted, "instance")
}

// runColumns are those of the runs of a schedule.
var runColumns = []output.Column{
	{Header: "RUN", Path: "number"},
	{Header: "STARTED", Path: "startedAt", Text: kinds.MomentCell},
	{Header: "ENDED", Path: "endedAt", Text: kinds.MomentCell},
	{Header: "RESULT", Path: "result", State: true, Text: resultCell},
	{Header: "BY", Path: "requestedBy", Text: requesterCell},
	{Header: "MESSAGE", Path: "message"},
}

func resultCell(f gjson.Result) string {
	if f.String() == "" {
		return "IN_PROGRESS"
	}
	return f.String()
}

func requesterCell(f gjson.Result) string {
	if f.String() == "" {
		return "cron"
	}
	return f.String()
}

func scheduleHistory(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "history NAME", Short: "List the last runs of a schedule",
		Long:    "Changes of the schedule itself are in: orrery history schedule NAME.",
		Example: "orrery schedule history nightly",
		Args:    command.Between(1, 1, "the name of a schedule"), Complete: command.CompleteNames(a, "schedule"),
		Run: func(ctx context.Context, args []string) error { return runScheduleHistory(ctx, a, args[0]) },
	})
}

func runScheduleHistory(ctx context.Context, a *app.App, name string) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	var runs []orrery.ScheduleRun
	for run, err := range client.AllScheduleRuns(ctx, name, nil) {
		if err != nil {
			return command.NotFound(ctx, client, err, "schedule", name)
		}
		runs = append(runs, run)
	}
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	if len(runs) == 0 && printer.Format.ForPeople() {
		a.Notef("schedule %s has not run yet", name)
		return nil
	}
	rows, err := app.Rows(runs)
	if err != nil {
		return err
	}
	return printer.List(runColumns, "number", rows)
}

func noticeTest(a *app.App) *cobra.Command {
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "test NAME", Short: "Send a test message, also of a notice that is turned off",
		Long:    "It fails with the reason if the target does not accept the message.",
		Example: "orrery notice test discord",
		Args:    command.Between(1, 1, "the name of a notice"), Complete: command.CompleteNames(a, "notice"),
		Run: func(ctx context.Context, args []string) error { return runNoticeTest(ctx, a, dryRun, args[0]) },
	})
	command.DryRunFlag(a, cmd, &dryRun)
	return cmd
}

func runNoticeTest(ctx context.Context, a *app.App, dryRun bool, name string) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	if dryRun {
		d, err := client.TestNoticeDryRun(ctx, name)
		if err != nil {
			return command.NotFound(ctx, client, err, "notice", name)
		}
		row, err := app.Row(d.Body)
		if err != nil {
			return err
		}
		return a.Say(d, name, "%s", row)
	}
	test, err := client.TestNotice(ctx, name)
	if err != nil {
		return command.NotFound(ctx, client, err, "notice", name)
	}
	if !test.Delivered {
		return undelivered(name, test)
	}
	return a.Say(test, name, "notice %s: the target accepted the test message", name)
}

func undelivered(name string, test *orrery.NoticeTest) error {
	reason := "the target did not accept it"
	if test.Error != nil {
		reason = *test.Error
	}
	return exit.Hint(errors.New("notice "+name+": "+reason), "check its target: orrery edit notice "+name)
}
