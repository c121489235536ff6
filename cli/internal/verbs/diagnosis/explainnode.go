package diagnosis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
)

func explainNode(ctx context.Context, a *app.App, client *orrery.Client, name string) error {
	row, _, err := app.Get(ctx, client, kinds.Get("node"), "", name)
	if err != nil {
		return err
	}
	n := &orrery.Node{}
	if err := json.Unmarshal(row, n); err != nil {
		return err
	}
	return a.Show(row, name, func(output.Printer) error { return a.Lines(nodeLines(n, time.Now())) })
}

// nodeLines says what a node is like. Its figures are as old as its last report.
func nodeLines(n *orrery.Node, now time.Time) []string {
	if n.Status == "PENDING" {
		return []string{"node " + n.ID + " has a token and has not joined yet: start its agent"}
	}
	lines := []string{fmt.Sprintf("node %s is %s", n.ID, n.Status)}
	if n.LastHeartbeat != nil {
		lines[0] += fmt.Sprintf("; its last report is %s old", kinds.Duration(now.Sub(*n.LastHeartbeat)))
	}
	if n.Cordoned {
		lines = append(lines, "  it takes no new instances: orrery uncordon "+n.ID+" ends that")
	}
	if d := n.Drain; d != nil {
		lines = append(lines, fmt.Sprintf("  it is being emptied (%s): %s with %s left; orrery undrain %s ends that", d.State, output.Counted(d.RemainingInstances, "instance"), output.Counted(d.Players, "player"), n.ID))
	}
	if n.Revoked != nil {
		lines = append(lines, "  it may not join until "+kinds.Moment(n.Revoked.Until)+", by "+n.Revoked.By)
	}
	if n.Message != "" {
		lines = append(lines, "  "+n.Message)
	}
	lines = append(lines,
		fmt.Sprintf("host: %s %s, %s, agent %s", n.HostInfo.OSName, n.HostInfo.OSVersion, n.HostInfo.CPUModel, n.Version),
		fmt.Sprintf("memory: %s of %s reserved by %s", kinds.Size(n.Reserved.MemoryMB<<20), kinds.Size(n.EffectiveCapacity.MemoryMB<<20), output.Counted(n.InstanceCount, "instance")),
		fmt.Sprintf("cpu: %s of %s reserved", cores(n.Reserved.CPU), cores(n.EffectiveCapacity.CPU)),
		fmt.Sprintf("disk: %s of %s free, %s reserved", kinds.Size(n.FreeDiskMB<<20), kinds.Size(n.TotalDiskMB<<20), kinds.Size(n.Reserved.DiskMB<<20)),
	)
	lines = append(lines, runtimeLines(n.Runtimes)...)
	lines = append(lines, limitLine(n.Limits))
	lines = append(lines, tenantLines(n.Tenants)...)
	return append(lines, policyLines(n.Policy)...)
}

// tenantLines says whether instances are isolated from each other. An older agent does not tell.
func tenantLines(t *orrery.NodeTenants) []string {
	if t == nil {
		return nil
	}
	line := "isolation: each instance has a user of its own"
	if !t.Isolated {
		line = "isolation: none"
	}
	if t.Why != "" {
		line += ": " + t.Why
	}
	return []string{line}
}

// policyLines says what the node admits. An older agent has no policy.
func policyLines(p *orrery.NodePolicy) []string {
	if p == nil {
		return nil
	}
	list := func(values []string, none string) string {
		if len(values) == 0 {
			return none
		}
		return strings.Join(values, ", ")
	}
	return []string{
		"policy.users: " + list(p.Users, "none"), "policy.container-users: " + list(p.ContainerUsers, "none"), "policy.volumes: " + list(p.Volumes, "none"),
		"policy.networks: " + list(p.Networks, "only none and the engine's default"), "policy.images: " + list(p.Images, "all"),
	}
}

func runtimeLines(runtimes []orrery.NodeRuntime) []string {
	var offered, missing []string
	for _, r := range runtimes {
		if r.Offered {
			offered = append(offered, r.Name)
		} else {
			missing = append(missing, fmt.Sprintf("it does not offer the runtime %s: %s", r.Name, r.Why))
		}
	}
	return append([]string{"runtimes: " + strings.Join(offered, ", ")}, missing...)
}

// allLimits are the limits that a host can enforce.
var allLimits = []string{"memory", "cpu", "processes", "io"}

// notHeld returns the limits that a node does not enforce.
func notHeld(l orrery.NodeLimits) []string {
	return slices.DeleteFunc(slices.Clone(allLimits), func(name string) bool { return slices.Contains(l.Held, name) })
}

func limitLine(l orrery.NodeLimits) string {
	line := fmt.Sprintf("limits: %s, by %s", strings.Join(l.Held, ", "), l.By)
	if missing := notHeld(l); len(missing) > 0 {
		line = fmt.Sprintf("%s; not enforced: %s", line, strings.Join(missing, ", "))
	}
	if l.Why != "" {
		line += ": " + l.Why
	}
	return line
}
