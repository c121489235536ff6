package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// table prints instances for people.
func (c *localCommand) table(all []client.Instance, now time.Time) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(c.stdout, "no instance is on this node")
		return err
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tGROUP\tSTATE\tREASON\tPID\tPORT\tSINCE")
	for _, i := range all {
		reason := string(i.Reason)
		if i.Orphan {
			reason += " (orphan)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			i.ID, i.Name, i.Group, i.State, reason, number(i.PID), number(i.Port), ago(i.ChangedAt, now))
	}
	return w.Flush()
}

// describe prints the agent for people.
func (c *localCommand) describe(a client.Agent, now time.Time) error {
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("node", "%s", a.Node)
	row("agent", "process %d, started %s, version %s", a.PID, ago(a.StartedAt, now), a.Version)
	row("data", "%s", a.DataDir)
	row("etcd", "%s", etcd(a.Etcd, now))
	row("session", "%s", session(a.Etcd))
	row("instances", "%s", counts(a))
	if a.Held > 0 {
		row("held", "%d until the node has joined: the host was restarted or this data directory is a copy, so the journalled instances may run elsewhere", a.Held)
	}
	if a.Unwritten > 0 {
		row("not reported", "%d statuses that are not yet written to etcd, the oldest from %s", a.Unwritten, ago(a.UnwrittenSince, now))
	}
	row("restarts", "%d in place by this agent", a.LocalRestarts)
	return w.Flush()
}

func etcd(e client.Etcd, now time.Time) string {
	switch {
	case e.Reachable:
		return "reachable since " + ago(e.Since, now)
	case e.LastContact.IsZero():
		return strings.TrimSuffix("not reached since this agent started; "+e.Problem, "; ")
	}
	return strings.TrimSuffix("not reachable, last contact "+ago(e.LastContact, now)+"; "+e.Problem, "; ")
}

func session(e client.Etcd) string {
	if e.SessionAlive {
		return "alive, epoch " + strconv.FormatInt(e.Epoch, 10)
	}
	return "none: the control plane may consider this node lost; its instances keep running"
}

func counts(a client.Agent) string {
	var parts []string
	for _, s := range fleet.States {
		if n := a.Instances[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "none")
	}
	if a.Orphans > 0 {
		parts = append(parts, fmt.Sprintf("%d of them without a record in etcd (orphans)", a.Orphans))
	}
	return strings.Join(parts, ", ")
}

func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// ago formats a time as the duration since, in whole seconds.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return max(0, now.Sub(at)).Truncate(time.Second).String() + " ago"
}
