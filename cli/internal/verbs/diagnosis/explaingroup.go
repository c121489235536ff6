package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
)

// groupExplanation is what explains the number of instances of a group.
type groupExplanation struct {
	Name              string              `json:"name"`
	RunningInstances  int64               `json:"runningInstances"`
	MinInstances      int64               `json:"minInstances"`
	MaxInstances      int64               `json:"maxInstances"`
	ScalingMode       string              `json:"scalingMode"`
	Scaling           orrery.ScalingState `json:"scaling"`
	Maintenance       bool                `json:"maintenance"`
	MaintenanceOfAll  bool                `json:"maintenanceOfAll"`
	Paused            bool                `json:"paused"`
	CrashLoop         *orrery.CrashLoop   `json:"crashLoop"`
	Held              orrery.QuotaAmount  `json:"held"`
	Quota             orrery.QuotaAmount  `json:"quota"`
	DependsOn         []string            `json:"dependsOn"`
	Message           string              `json:"message"`
	WaitingInstances  []waitingInstance   `json:"waitingInstances"`
	InstancesNotShown bool                `json:"instancesNotShown"`
}

// waitingInstance is an instance of the group that does not run yet.
type waitingInstance struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Message string `json:"message"`
}

func explainGroup(ctx context.Context, a *app.App, client *orrery.Client, name string) error {
	g, err := client.GetGroup(ctx, name)
	if err != nil {
		return command.NotFound(ctx, client, err, "group", name)
	}
	all, err := client.GetMaintenance(ctx)
	if err != nil {
		return err
	}
	e := groupExplanation{
		Name: g.Name, RunningInstances: g.RunningInstances, MinInstances: g.MinInstances, MaxInstances: g.MaxInstances,
		ScalingMode: g.ScalingMode, Scaling: g.Scaling, Maintenance: g.Maintenance, MaintenanceOfAll: all.Enabled,
		Paused: g.Paused, CrashLoop: g.CrashLoop, Held: g.Held, Quota: g.Quota, DependsOn: g.DependsOn, Message: g.Message,
	}
	if err := e.addWaiting(ctx, client); err != nil {
		return err
	}
	return a.Show(e, name, func(output.Printer) error { return a.Lines(e.lines()) })
}

// addWaiting adds the instances that shall run and do not.
func (e *groupExplanation) addWaiting(ctx context.Context, client *orrery.Client) error {
	e.WaitingInstances = []waitingInstance{}
	for i, err := range client.AllInstances(ctx, &orrery.ListInstancesParams{Group: e.Name}) {
		if errors.Is(err, orrery.ErrDenied) {
			e.InstancesNotShown = true
			return nil
		}
		if err != nil {
			return err
		}
		if i.Desired == "running" && i.State != "RUNNING" && i.State != "DRAINING" {
			e.WaitingInstances = append(e.WaitingInstances, waitingInstance{i.ID, i.State, i.Message})
		}
	}
	return nil
}

func (e *groupExplanation) lines() []string {
	lines := []string{fmt.Sprintf("group %s shall have %s: %d run, %d missing (minimum %d, %s)",
		e.Name, output.Counted(e.Scaling.Target, "instance"), e.RunningInstances, e.Scaling.Missing, e.MinInstances, maximum(e.MaxInstances))}
	held := e.holding()
	for _, reason := range held {
		lines = append(lines, "  "+reason)
	}
	if len(held) == 0 {
		lines = append(lines, "  nothing holds it back")
	}
	lines = append(lines, e.scalingLines()...)
	lines = append(lines, "its instances hold "+amount(e.Held)+limit(e.Quota))
	for _, i := range e.WaitingInstances {
		lines = append(lines, fmt.Sprintf("%s is %s: %s", i.Name, i.State, i.Message))
	}
	if e.InstancesNotShown {
		lines = append(lines, "you may not see its instances")
	}
	return lines
}

// holding returns what keeps the group from starting instances.
func (e *groupExplanation) holding() []string {
	var held []string
	if e.ScalingMode == "MANUAL" {
		held = append(held, "its scaling mode is MANUAL: nothing is started automatically")
	}
	if e.MaintenanceOfAll {
		held = append(held, "all groups are in maintenance: orrery maintenance off ends it")
	}
	if e.Maintenance {
		held = append(held, "it is in maintenance: orrery maintenance off group "+e.Name+" ends it")
	}
	if e.Paused && e.CrashLoop != nil {
		held = append(held, fmt.Sprintf("it is paused until %s after %s: orrery crash reset %s ends the pause", kinds.Moment(e.CrashLoop.PausedUntil), crashes(e.CrashLoop.Crashes), e.Name))
	}
	if by := e.Scaling.HeldBy; by != nil {
		held = append(held, by.Message+" ("+by.Reason+")")
	}
	if e.Message != "" {
		held = append(held, e.Message)
	}
	return held
}

func (e *groupExplanation) scalingLines() []string {
	if !e.Scaling.Automatic {
		return []string{"its load does not change the number: " + e.Scaling.Message}
	}
	lines := []string{fmt.Sprintf("its load changes the number; %d player slots take players", e.Scaling.Slots)}
	if last := e.Scaling.Last; last != nil {
		by := ""
		if last.Policy != "" {
			by = ", by policy " + last.Policy
		}
		lines = append(lines, fmt.Sprintf("the last change was from %d to %d, %s ago%s: %s", last.From, last.To, kinds.Duration(time.Since(last.At)), by, last.Message))
	}
	if until := e.Scaling.CooldownUntil; until != nil {
		lines = append(lines, "the next change is possible from "+kinds.Moment(*until))
	}
	return lines
}

func maximum(n int64) string {
	if n == 0 {
		return "no maximum"
	}
	return fmt.Sprintf("maximum %d", n)
}

// amount returns resources such as 192 MiB, 1.5 cores and 3 instances.
func amount(q orrery.QuotaAmount) string {
	var parts []string
	if n := value(q.MemoryMB); n > 0 {
		parts = append(parts, kinds.Size(n<<20))
	}
	if n := value(q.CPU); n > 0 {
		parts = append(parts, cores(n))
	}
	if n := value(q.Instances); n > 0 {
		parts = append(parts, output.Counted(n, "instance"))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func limit(q orrery.QuotaAmount) string {
	if text := amount(q); text != "nothing" {
		return "; its quota is " + text
	}
	return ""
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// cores returns hundredths of a core as cores.
func cores(hundredths int64) string { return fmt.Sprintf("%g cores", float64(hundredths)/100) }

func crashes(n int64) string {
	if n == 1 {
		return "1 crash"
	}
	return fmt.Sprintf("%d crashes", n)
}
