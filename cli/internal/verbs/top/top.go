package top

import (
	"context"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/output/terminal"
	"github.com/orreryhq/orrery/cli/internal/verbs/console"
	"github.com/orreryhq/orrery/cli/internal/verbs/live"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// Command returns the command top.
func Command(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "top", Aliases: []string{"stats"},
		Short: "Watch nodes, groups and instances on the whole screen",
		Long: `The keys are at the bottom of the screen, and ? explains them all. It needs a terminal; orrery get instances --watch does not.

Memory and players change with the reports of the nodes and with what servers report themselves.`,
		Example:   "orrery top",
		Following: true,
		OnlyText:  true,
		Run:       func(ctx context.Context, _ []string) error { return run(ctx, a) },
	})
}

func run(ctx context.Context, a *app.App) error {
	if !a.Interactive || a.Width == 0 {
		return command.UsageError("use: orrery get instances --watch", "top needs a terminal")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	target, err := a.Target()
	if err != nil {
		return err
	}
	cluster := target.Context
	if cluster == "" {
		cluster = client.Address()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	model := NewModel(cluster, a.Style(), actions(ctx, a, client))
	program := tea.NewProgram(model, tea.WithContext(ctx), tea.WithInput(a.In), tea.WithOutput(a.Out), tea.WithoutSignalHandler())
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		f := &feed{client, program.Send}
		if err := f.run(ctx); ctx.Err() == nil {
			program.Send(endedMsg{err})
		}
	}()
	_, err = program.Run()
	interrupted := ctx.Err()
	cancel()
	<-fed
	switch {
	case model.err != nil:
		return model.err
	case interrupted != nil:
		return interrupted
	}
	return err
}

// actTimeout bounds an action on an instance.
const actTimeout = time.Minute

func actions(ctx context.Context, a *app.App, client *orrery.Client) Actions {
	taking := func(do func(context.Context, *app.App, string) error) func(string) tea.Cmd {
		return func(name string) tea.Cmd {
			return tea.Exec(&takeover{func() error { return do(ctx, a, name) }}, func(err error) tea.Msg {
				if err != nil {
					return noticeMsg(err.Error())
				}
				return noticeMsg("")
			})
		}
	}
	return Actions{
		Attach: taking(console.Attach),
		Logs:   taking(live.Follow),
		Act: func(verb, name string) tea.Cmd {
			return func() tea.Msg {
				ctx, cancel := context.WithTimeout(ctx, actTimeout)
				defer cancel()
				return act(ctx, client, verb, name)
			}
		},
		Explain: func(name string) tea.Cmd {
			return func() tea.Msg {
				ctx, cancel := context.WithTimeout(ctx, actTimeout)
				defer cancel()
				return explain(ctx, client, name)
			}
		},
	}
}

// takeover is a command that takes the terminal from the program.
type takeover struct{ do func() error }

// Run runs the command.
func (t *takeover) Run() error { return t.do() }

// SetStdin, SetStdout and SetStderr do nothing: the command has the same terminal.
func (t *takeover) SetStdin(io.Reader)  {}
func (t *takeover) SetStdout(io.Writer) {}
func (t *takeover) SetStderr(io.Writer) {}

func act(ctx context.Context, client *orrery.Client, verb, name string) tea.Msg {
	do := map[string]func(context.Context, string) (*orrery.InstanceActionResponse, error){
		"stop": client.StopInstance, "restart": client.RestartInstance, "kill": client.ForceStopInstance,
	}[verb]
	answer, err := do(ctx, name)
	if err != nil {
		return noticeMsg(fmt.Sprintf("cannot %s %s: %v", verb, name, err))
	}
	return noticeMsg(name + ": " + answer.Status)
}

// explain returns the answer to why an instance is as it is.
func explain(ctx context.Context, client *orrery.Client, name string) tea.Msg {
	e, err := client.ExplainInstance(ctx, name)
	if err != nil {
		return noticeMsg(fmt.Sprintf("cannot explain %s: %v", name, err))
	}
	lines := []string{fmt.Sprintf("%s is %s: %s", e.ID, e.State, e.Message), ""}
	for _, step := range e.Chain {
		at := ""
		if step.At != nil {
			at = step.At.Local().Format(time.DateTime) + "  "
		}
		lines = append(lines, at+step.Message)
	}
	if e.Pending != nil {
		lines = append(lines, "", e.Pending.Message)
		for _, lost := range e.Pending.Lost {
			line := fmt.Sprintf("  %s excludes %d nodes", lost.Filter, lost.Nodes)
			if lost.Fix != "" {
				line += ": " + lost.Fix
			}
			lines = append(lines, line)
		}
	}
	for i, line := range lines {
		lines[i] = terminal.Clean(line)
	}
	return overlayMsg{title: "why " + name, lines: lines}
}
