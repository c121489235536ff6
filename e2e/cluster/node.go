package cluster

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/await"
)

// NodeOptions configure an additional node.
type NodeOptions struct {
	ID     string
	Labels map[string]string
	// MemoryMiB and CPU are its capacity. 0 means the machine's.
	MemoryMiB, CPU int
	// Flags are additional flags for its agent.
	Flags []string
}

// Node is an additional node of a cluster: an agent, always in a separate process.
type Node struct {
	*site.Process
	ID string
	t  testing.TB
}

// AddNode runs an additional node until the test ends, and waits until it is online. Its
// instances end with its agent.
func AddNode(t testing.TB, c Local, admin *Client, o NodeOptions) *Node {
	t.Helper()
	dir := filepath.Join(t.TempDir(), o.ID)
	args := []string{
		"--node", o.ID, "--data", dir, "--listen", "127.0.0.1:0", "--api-url", c.API(), "--stop-instances", "--log-level", "debug",
	}
	args = append(args, c.Agent(o.ID)...)
	var labels []string
	for k, v := range o.Labels {
		labels = append(labels, k+"="+v)
	}
	slices.Sort(labels)
	for flag, value := range map[string]string{"--labels": strings.Join(labels, ","), "--memory": number(o.MemoryMiB), "--cpu": number(o.CPU)} {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	n := &Node{ID: o.ID, t: t, Process: site.NewProcess(o.ID, Program(t, "./nodeagent/cmd/nodeagent"), dir+".log", append(args, o.Flags...)...)}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.end)
	n.AwaitOnline(admin)
	return n
}

// number formats a positive number; others become "".
func number(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// AwaitOnline waits until the node is online.
func (n *Node) AwaitOnline(admin *Client) {
	n.t.Helper()
	await.That(n.t, n.ID+" taking part", func() string {
		if !n.Running() {
			n.t.Fatalf("the agent of %s ended: %v", n.ID, n.Ended())
		}
		var node struct{ Type string }
		reply := admin.Do("GET", "/api/v1/nodes/"+n.ID, nil)
		if reply.Status == 200 && reply.OK(200, &node) != nil && node.Type == "CONNECTED" {
			return ""
		}
		return string(reply.Body)
	})
}

// end stops the agent and its instances, and prints its log if the test failed.
func (n *Node) end() {
	if err := n.Stop(); err != nil {
		n.t.Error(err)
	}
	if n.t.Failed() {
		log, _ := n.Log()
		n.t.Logf("---- %s\n%s", n.ID, log)
	}
}
