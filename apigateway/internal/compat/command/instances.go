package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/compat/universe"
	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// defaultLines is how many lines "instance logs" shows by default.
const defaultLines = 25

func (*Interpreter) instanceCommands() []command {
	see, stop := []auth.Permission{auth.InstancesView}, []auth.Permission{auth.InstancesStop}
	start := []auth.Permission{auth.GroupsStart}
	return []command{
		{name: "instance list", args: []string{"[all]"}, about: "list instances; all also lists those that ended a while ago", needs: see, run: listInstances},
		{name: "instance create", args: []string{"<config>", "[amount]"}, about: "start instances of a configuration, one unless an amount is given", needs: start, changes: true, run: createInstances},
		{name: "instance start", args: []string{"<id>"}, about: "start a stopped instance again with the same id", needs: start, changes: true, run: startInstance},
		{name: "instance stop", args: []string{"<id>"}, about: "stop an instance", needs: stop, changes: true, run: stopInstance(false)},
		{name: "instance kill", args: []string{"<id>"}, about: "kill an instance", needs: stop, changes: true, run: stopInstance(true)},
		{name: "instance restart", args: []string{"<id>"}, about: "restart an instance with the same id", needs: append(slices.Clone(start), stop...), changes: true, run: restartInstance},
		{name: "instance freeze", args: []string{"<id>"}, about: "freeze an instance: it is neither scaled down nor replaced when it ends", needs: stop, changes: true, run: freezeInstance(true)},
		{name: "instance unfreeze", args: []string{"<id>"}, about: "allow that an instance is scaled down and replaced again", needs: stop, changes: true, run: freezeInstance(false)},
		{name: "instance info", args: []string{"<id>"}, about: "show an instance", needs: see, run: showInstance},
		{name: "instance logs", args: []string{"<id>", "[lines]"}, about: "show the last lines of an instance's console, " + strconv.Itoa(defaultLines) + " unless a number is given", needs: []auth.Permission{auth.InstancesConsole}, run: showLogs},
		{name: "instance execute", other: []string{"exec", "run", "cmd", "command"}, args: []string{"<id>", "<command…>"}, about: "type a command into an instance's console, unchanged", needs: []auth.Permission{auth.InstancesCommand}, changes: true, run: execute},
	}
}

func listInstances(_ context.Context, c *call) error {
	all := false
	switch c.arg(0) {
	case "":
	case "all":
		all = true
	default:
		return errs.New(errs.Malformed, "%q cannot be listed: use instance list, or instance list all", clip(c.arg(0)))
	}
	now := c.cfg.Now()
	rows := [][]string{{"ID", "NAME", "CONFIG", "RUNTIME", "HOST", "PORT", "STATE", ""}}
	var shown []*fleet.Instance
	for _, i := range c.snapshot.Instances.All() {
		if all || !universe.Hidden(i, now) {
			shown = append(shown, i)
		}
	}
	if len(shown) == 0 {
		return c.say("there are no instances")
	}
	slices.SortFunc(shown, func(a, b *fleet.Instance) int {
		return cmp.Or(cmp.Compare(a.Intent.Group, b.Intent.Group), cmp.Compare(a.Intent.Ordinal, b.Intent.Ordinal), cmp.Compare(a.Intent.ID, b.Intent.ID))
	})
	for _, i := range shown {
		s := universe.InstanceOf(c.snapshot, i, now)
		mark := ""
		if g, ok := c.snapshot.Groups.Get(i.Intent.Group); ok && g.Spec.Static.Enabled {
			mark = "[STATIC]"
		}
		rows = append(rows, []string{string(s.ID), s.Name, string(s.ConfigurationName), string(s.Runtime), dash(s.HostAddress), number(s.AllocatedPort), s.State, mark})
	}
	return c.table(rows)
}

func createInstances(ctx context.Context, c *call) error {
	amount := 1
	if text := c.arg(1); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return errs.New(errs.Malformed, "the amount must be a whole number, is %q", clip(text))
		}
		amount = n
	}
	made, short, err := c.cfg.Operations.StartInstances(ctx, c.By, instanceops.StartRequest{Group: fleet.GroupName(c.arg(0)), Count: amount, StaticOnce: true})
	if err != nil {
		return named(err, "count", "amount")
	}
	for _, i := range made {
		if err := c.say("instance %s (%s) is being created", i.ID, i.Name); err != nil {
			return err
		}
	}
	if short != nil {
		return c.say("%d more are not: %s", amount-len(made), errs.MessageOf(short))
	}
	return nil
}

// named renames the field of an error from its native name.
func named(err error, native, here string) error {
	if errs.FieldOf(err) != native {
		return err
	}
	return &errs.Error{Kind: errs.KindOf(err), Field: here, Message: errs.MessageOf(err), Err: err}
}

// told reports the outcome of an operation on an instance.
func (c *call) told(out instanceops.Outcome, done, already string) error {
	i := out.Instance
	switch {
	case !out.Changed:
		return c.say("instance %s (%s) %s", i.Intent.ID, i.Intent.Name, already)
	case out.Waiting != "":
		return c.say("instance %s (%s) %s as soon as node %s is back", i.Intent.ID, i.Intent.Name, done, out.Waiting)
	}
	return c.say("instance %s (%s) %s", i.Intent.ID, i.Intent.Name, done)
}

func startInstance(ctx context.Context, c *call) error {
	out, err := c.cfg.Operations.StartInstance(ctx, c.By, c.arg(0))
	if err != nil {
		return err
	}
	return c.told(out, "starts", "runs already")
}

func stopInstance(force bool) func(context.Context, *call) error {
	return func(ctx context.Context, c *call) error {
		out, err := c.cfg.Operations.StopInstance(ctx, c.By, c.arg(0), force)
		if err != nil {
			return err
		}
		done := "stops"
		if force {
			done = "is killed"
		}
		already := "is stopping already"
		if out.Instance.Terminal() {
			already = "has stopped already"
		}
		return c.told(out, done, already)
	}
}

func freezeInstance(frozen bool) func(context.Context, *call) error {
	done, already := "is not frozen any more", "is not frozen"
	if frozen {
		done, already = "is frozen", "is frozen already"
	}
	return func(ctx context.Context, c *call) error {
		out, err := c.cfg.Operations.FreezeInstance(ctx, c.By, c.arg(0), frozen)
		if err != nil {
			return err
		}
		text := done
		if !out.Changed {
			text = already
		}
		return c.say("instance %s (%s) %s", out.Instance.Intent.ID, out.Instance.Intent.Name, text)
	}
}

func restartInstance(ctx context.Context, c *call) error {
	out, err := c.cfg.Operations.RestartInstance(ctx, c.By, c.arg(0))
	if err != nil {
		return err
	}
	return c.told(out, "restarts", "is restarting already")
}

func showInstance(_ context.Context, c *call) error {
	found, err := c.cfg.Operations.Find(c.arg(0))
	if err != nil {
		return err
	}
	i := universe.InstanceOf(c.snapshot, found, c.cfg.Now())
	pid := 0
	if i.ProcessPID != nil {
		pid = *i.ProcessPID
	}
	rows := [][]string{
		{"id", string(i.ID)},
		{"name", i.Name},
		{"configuration", string(i.ConfigurationName)},
		{"runtime", string(i.Runtime)},
		{"node", dash(string(i.WrapperNodeID))},
		{"host", dash(i.HostAddress)},
		{"port", number(i.AllocatedPort)},
		{"state", i.State},
		{"reason", string(i.Reason)},
		{"message", dash(i.Message)},
		{"process", number(pid)},
		{"memory", used(i.UsedRAMMB, " MB") + " used of " + strconv.Itoa(i.AllocatedRAMMB) + " MB"},
		{"cpu", used(i.UsedCPU, "") + " used of " + strconv.Itoa(i.AllocatedCPU)},
		{"disk", used(i.UsedDiskMB, " MB") + " used"},
		{"uptime", uptime(i.UptimeMs)},
		{"last heartbeat", time.UnixMilli(i.LastHeartbeat).UTC().Format(time.RFC3339)},
	}
	if i.Players != nil {
		rows = append(rows, []string{"players", strconv.Itoa(*i.Players) + " of " + used(i.MaxPlayers, "")})
	}
	if i.ExitCode != nil {
		rows = append(rows, []string{"exit code", strconv.Itoa(*i.ExitCode)})
	}
	return c.table(rows)
}

// used formats a quantity; "?" if it is unknown.
func used[T int | int64 | float64](n *T, unit string) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n) + unit
}

// uptime formats milliseconds as a duration; "-" if the instance has not started.
func uptime(millis *int64) string {
	if millis == nil {
		return "-"
	}
	return (time.Duration(*millis) * time.Millisecond).Truncate(time.Second).String()
}

func showLogs(ctx context.Context, c *call) error {
	lines := defaultLines
	if text := c.arg(1); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n >= MaxLines {
			return errs.New(errs.Malformed, "the number of lines must be between 1 and %d, is %q", MaxLines-1, clip(text))
		}
		lines = n
	}
	log, err := c.cfg.Operations.Logs(ctx, c.arg(0), client.Query{Lines: lines})
	if err != nil {
		return err
	}
	if i, ok := c.snapshot.Find(c.arg(0)); ok {
		c.cfg.Operations.NoteRead(c.By, account.ActionConsoleRead, "instance", string(i.Intent.ID), "")
	}
	if len(log.Lines) == 0 {
		return c.say("instance %s has printed nothing yet", c.arg(0))
	}
	for _, l := range log.Lines {
		if err := c.say("%s", strings.ToValidUTF8(l.Text, "\uFFFD")); err != nil {
			return err
		}
	}
	return nil
}

func execute(ctx context.Context, c *call) error {
	sent, err := c.cfg.Operations.Command(ctx, c.By, c.arg(0), c.arg(1), "")
	if err != nil {
		return err
	}
	if sent.Via != instanceops.ViaRCON {
		return c.say("sent to instance %s", c.arg(0))
	}
	for line := range strings.Lines(sent.Answer) {
		if err := c.say("%s", strings.TrimRight(line, "\r\n")); err != nil {
			return err
		}
	}
	if sent.Incomplete {
		return c.say("(the answer is not complete)")
	}
	return nil
}
