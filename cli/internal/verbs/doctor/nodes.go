package doctor

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/kinds"
	orrery "github.com/orreryhq/orrery/sdk"
)

// readNodes reads the nodes once.
func (s *subject) readNodes(ctx context.Context) error {
	if s.nodes != nil {
		return nil
	}
	nodes := []orrery.NodeOrPendingNode{}
	for n, err := range s.client.AllNodes(ctx, nil) {
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	s.nodes = nodes
	return nil
}

func checkNodes(ctx context.Context, s *subject) (found findings) {
	if found.unable(s.readNodes(ctx), "nodes.view") {
		return found
	}
	if len(s.nodes) == 0 {
		found.add(fail, "add one: orrery create join-token", "there is no node, so nothing can run")
		return found
	}
	used := s.runtimesInUse(ctx)
	for _, n := range s.nodes {
		s.checkNode(&found, n)
		if n.Status == "PENDING" || n.Status == "OFFLINE" {
			continue
		}
		checkRuntimes(&found, n, used)
		checkLimits(&found, n)
		checkTenants(&found, n)
		checkNodeDisk(&found, n)
	}
	return found
}

// lateReport is how old the last report of a connected node may be.
const lateReport = 2 * time.Minute

func (s *subject) checkNode(found *findings, n orrery.NodeOrPendingNode) {
	const restart = ": systemctl restart orrery-nodeagent"
	report := "no report yet"
	age := time.Duration(0)
	if n.LastHeartbeat != nil {
		age = max(s.now().Sub(*n.LastHeartbeat), 0)
		report = "last report " + kinds.Duration(age) + " ago"
	}
	switch {
	case n.Status == "PENDING":
		found.add(warn, "start its agent with the join token, or revoke the token: orrery delete join-token "+n.TokenID, "node %s has a join token and has not joined yet", n.ID)
	case n.Status == "OFFLINE":
		found.add(fail, "on that machine: systemctl start orrery-nodeagent; if it does not return: orrery delete node "+n.ID, "node %s is not connected, %s, %d instances", n.ID, report, n.InstanceCount)
	case n.Status == "UNREACHABLE" || n.LastHeartbeat != nil && age > lateReport:
		found.add(fail, "see its load and the log of its agent: journalctl -u orrery-nodeagent", "node %s is %s, %s", n.ID, n.Status, report)
	case n.Message != "":
		found.add(warn, "on that machine, after the change"+restart, "node %s: %s", n.ID, n.Message)
	case n.Status == "CORDONED":
		found.add(warn, "if that is no longer wanted: orrery uncordon "+n.ID, "node %s takes no new instances", n.ID)
	default:
		found.add(ok, "", "node %s is %s, %s, %d instances", n.ID, n.Status, report, n.InstanceCount)
	}
}

// runtimesInUse returns the runtimes of all groups. It is empty if the user may not see them.
func (s *subject) runtimesInUse(ctx context.Context) map[string][]string {
	used := map[string][]string{}
	for g, err := range s.client.AllGroups(ctx, nil) {
		if err != nil {
			return nil
		}
		used[g.Runtime] = append(used[g.Runtime], g.Name)
	}
	return used
}

func checkRuntimes(found *findings, n orrery.NodeOrPendingNode, used map[string][]string) {
	for _, r := range n.Runtimes {
		if r.Offered {
			continue
		}
		if groups := used[r.Name]; len(groups) > 0 {
			found.add(warn, r.Why, "node %s does not offer the runtime %s, which %s needs", n.ID, r.Name, strings.Join(groups[:min(len(groups), shownNames)], ", "))
			continue
		}
		found.add(ok, "", "node %s does not offer %s, which no group uses (%s)", n.ID, r.Name, r.Why)
	}
}

// checkTenants says whether a node isolates its instances from each other. An older agent does not tell.
func checkTenants(found *findings, n orrery.NodeOrPendingNode) {
	switch {
	case n.Tenants == nil:
	case n.Tenants.Isolated && n.Tenants.Why == "":
		found.add(ok, "", "node %s runs each instance as a user of its own", n.ID)
	case n.Tenants.Isolated:
		found.add(warn, n.Tenants.Why, "node %s does not isolate its instances completely", n.ID)
	default:
		found.add(warn, n.Tenants.Why, "node %s does not isolate its instances from each other", n.ID)
	}
}

// shownNames is how many names a line has at most.
const shownNames = 5

// limits are what a host should be able to enforce.
var limits = []string{"memory", "cpu", "processes", "io"}

func checkLimits(found *findings, n orrery.NodeOrPendingNode) {
	if n.Limits == nil {
		return
	}
	missing := slices.DeleteFunc(slices.Clone(limits), func(name string) bool { return slices.Contains(n.Limits.Held, name) })
	if len(missing) == 0 {
		found.add(ok, "", "node %s enforces the limits of instances, by %s", n.ID, n.Limits.By)
		return
	}
	fix := n.Limits.Why
	if fix == "" {
		fix = "run its agent with systemd and Delegate=yes"
	}
	found.add(warn, fix, "node %s does not enforce limits of %s", n.ID, strings.Join(missing, ", "))
}

const (
	// diskWarn and diskFail are which share of a disk should be free.
	diskWarn, diskFail = 0.10, 0.03
)

func checkNodeDisk(found *findings, n orrery.NodeOrPendingNode) {
	if n.TotalDiskMB == 0 || n.LastHeartbeat == nil { // the free space is in reports
		return
	}
	judgeDisk(found, "the disk of node "+n.ID, n.FreeDiskMB<<20, n.TotalDiskMB<<20)
}

// judgeDisk judges how much of a disk is free, in bytes.
func judgeDisk(found *findings, disk string, free, total int64) {
	const fix = "free space: orrery get instances --sort-by -usedDiskMb shows what needs most"
	message := fmt.Sprintf("%s has %s of %s free", disk, kinds.Size(free), kinds.Size(total))
	switch share := float64(free) / float64(total); {
	case share < diskFail:
		found.add(fail, fix, "%s", message)
	case share < diskWarn:
		found.add(warn, fix, "%s", message)
	default:
		found.add(ok, "", "%s", message)
	}
}

// checkAddresses resolves the addresses of the nodes, which players use too.
func checkAddresses(ctx context.Context, s *subject) (found findings) {
	if found.unable(s.readNodes(ctx), "nodes.view") {
		return found
	}
	for _, n := range s.nodes {
		switch ip := net.ParseIP(n.Address); {
		case n.Address == "":
		case ip != nil && ip.IsLoopback() && len(s.nodes) > 1:
			found.add(warn, "set ORRERY_ADDRESS of its agent to an address that players reach", "the address of node %s is %s, which only that machine can reach", n.ID, n.Address)
		case ip != nil:
			found.add(ok, "", "the address of node %s is %s", n.ID, n.Address)
		default:
			resolve(ctx, &found, n)
		}
	}
	return found
}

func resolve(ctx context.Context, found *findings, n orrery.NodeOrPendingNode) {
	addresses, err := net.DefaultResolver.LookupHost(ctx, n.Address)
	if err != nil {
		found.add(warn, "add it to the DNS, or set ORRERY_ADDRESS of its agent to another name", "the address of node %s cannot be resolved here: %v", n.ID, err)
		return
	}
	found.add(ok, "", "the address of node %s, %s, is %s", n.ID, n.Address, strings.Join(addresses, ", "))
}
