package storetest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/store"
)

// Cluster is an etcd with several members. Only the test's own goroutine may call its methods.
type Cluster struct {
	members []*member
	initial string
}

// member is one etcd of a cluster. Its addresses stay the same across restarts.
type member struct {
	name   string
	dir    string
	client *gate
	peer   *gate
	server *embed.Etcd // nil while it is down
}

// StartCluster runs n members until the test ends.
func StartCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{}
	var initial []string
	for i := range n {
		m := &member{name: fmt.Sprintf("m%d", i), dir: t.TempDir(), client: newGate(t), peer: newGate(t)}
		c.members = append(c.members, m)
		initial = append(initial, m.name+"="+m.peer.url())
	}
	c.initial = strings.Join(initial, ",")
	t.Cleanup(c.KillAll)
	c.RestartAll(t)
	return c
}

func (c *Cluster) launch(t testing.TB, m *member) {
	t.Helper()
	proctest.AwaitUnlocked(t, filepath.Join(m.dir, walFiles))
	server, err := embed.StartEtcd(memberOptions{Name: m.name, Dir: m.dir, Client: m.client.url(), Peer: m.peer.url(), Initial: c.initial}.config())
	if err != nil {
		t.Fatalf("starting member %s: %v", m.name, err)
	}
	m.server = server
	m.client.open(server.Clients[0].Addr().String())
	m.peer.open(server.Peers[0].Addr().String())
}

func (m *member) awaitReady(t testing.TB) {
	t.Helper()
	select {
	case <-m.server.Server.ReadyNotify():
	case <-time.After(readyTimeout):
		t.Fatalf("member %s was not ready within %v", m.name, readyTimeout)
	}
}

// Endpoints returns the members' client URLs, including those of dead members.
func (c *Cluster) Endpoints() []string {
	out := make([]string, 0, len(c.members))
	for _, m := range c.members {
		out = append(out, m.client.url())
	}
	return out
}

// Client connects to all members over the network until the test ends.
func (c *Cluster) Client(t testing.TB) *store.Client { return c.ClientAt(t, c.Endpoints()...) }

// ClientAt connects to the given addresses until the test ends.
func (c *Cluster) ClientAt(t testing.TB, endpoints ...string) *store.Client {
	t.Helper()
	return dial(t, endpoints...)
}

// Raw returns etcd's own in-process client of a live member.
func (c *Cluster) Raw(t testing.TB) *clientv3.Client {
	t.Helper()
	cli := v3client.New(c.members[c.alive(t)].server.Server)
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// alive returns the leader, or any live member during an election.
func (c *Cluster) alive(t testing.TB) int {
	t.Helper()
	for i, m := range c.members {
		if m.server != nil && m.server.Server.Lead() == uint64(m.server.Server.MemberID()) {
			return i
		}
	}
	for i, m := range c.members {
		if m.server != nil {
			return i
		}
	}
	t.Fatal("every member is down")
	return 0
}

// Leader waits for a live leader and returns its index.
func (c *Cluster) Leader(t testing.TB) int {
	t.Helper()
	for deadline := time.Now().Add(readyTimeout); time.Now().Before(deadline); <-time.After(time.Millisecond) {
		for i, m := range c.members {
			if m.server != nil && m.server.Server.Lead() == uint64(m.server.Server.MemberID()) {
				return i
			}
		}
	}
	t.Fatalf("no leader within %v", readyTimeout)
	return 0
}

// MoveLeader makes a live member the leader. It retries if the members elect another one.
func (c *Cluster) MoveLeader(t testing.TB, to int) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(readyTimeout); time.Now().Before(deadline); {
		from := c.Leader(t)
		if from == to {
			return
		}
		s := c.members[from].server.Server
		ctx, cancel := context.WithTimeout(t.Context(), moveTimeout)
		err = s.MoveLeader(ctx, uint64(s.MemberID()), uint64(c.members[to].server.Server.MemberID()))
		cancel()
	}
	t.Fatalf("member %d did not become the leader within %v: %v", to, readyTimeout, err)
}

// moveTimeout bounds one attempt to hand over the leadership.
const moveTimeout = 2 * time.Second

// Kill stops a member like a crash, without a handover. Killing a dead member does nothing.
func (c *Cluster) Kill(i int) {
	m := c.members[i]
	if m.server == nil {
		return
	}
	m.client.close()
	m.peer.close()
	m.server.Server.HardStop()
	m.server.Close()
	m.server = nil
}

// KillAll kills all members at the same time.
func (c *Cluster) KillAll() {
	var wg sync.WaitGroup
	for i := range c.members {
		wg.Go(func() { c.Kill(i) })
	}
	wg.Wait()
}

// Restart starts a dead member again with its data and waits until it is part of the cluster.
func (c *Cluster) Restart(t testing.TB, i int) {
	t.Helper()
	c.launch(t, c.members[i])
	c.members[i].awaitReady(t)
}

// RestartAll starts every dead member with its data and waits until they have a leader.
func (c *Cluster) RestartAll(t testing.TB) {
	t.Helper()
	for _, m := range c.members {
		if m.server == nil {
			c.launch(t, m)
		}
	}
	for _, m := range c.members {
		m.awaitReady(t)
	}
}

// CompactBefore removes the history before a revision.
func (c *Cluster) CompactBefore(t testing.TB, rev int64) {
	t.Helper()
	if _, err := c.Raw(t).Compact(t.Context(), rev, clientv3.WithCompactPhysical()); err != nil {
		t.Fatalf("compacting before %d: %v", rev, err)
	}
}
