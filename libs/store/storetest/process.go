package storetest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/orreryhq/orrery/libs/store"
)

// memberEnv makes a test program run as an etcd member.
const memberEnv = "ORRERY_TEST_ETCD_MEMBER"

// memberOptions are the options of one member of several, and the value of memberEnv.
type memberOptions struct {
	Name, Dir, Client, Peer, Initial string
}

func (o memberOptions) config() *embed.Config {
	cfg := config(o.Dir)
	cfg.Name, cfg.InitialCluster = o.Name, o.Initial
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = urls("http://127.0.0.1:0"), urls(o.Client)
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = urls("http://127.0.0.1:0"), urls(o.Peer)
	return cfg
}

// ServeMember must be the first call of TestMain in a package that uses StartProcesses. In a
// process started by StartProcesses it serves and does not return.
func ServeMember() {
	text, ok := os.LookupEnv(memberEnv)
	if !ok {
		return
	}
	if err := serveMember(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serveMember prints the addresses it listens on, and serves until standard input ends.
func serveMember(text string) error {
	var o memberOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	server, err := embed.StartEtcd(o.config())
	if err != nil {
		return err
	}
	defer server.Close()
	fmt.Println(server.Clients[0].Addr(), server.Peers[0].Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// Processes is an etcd whose members are processes, so that they can be made to hang.
type Processes struct {
	endpoints []string
	commands  []*exec.Cmd
}

// StartProcesses runs n members until the test ends. TestMain must call ServeMember.
func StartProcesses(t testing.TB, n int) *Processes {
	t.Helper()
	p := &Processes{}
	var clients, peers []*gate
	var initial []string
	for i := range n {
		clients, peers = append(clients, newGate(t)), append(peers, newGate(t))
		p.endpoints = append(p.endpoints, clients[i].url())
		initial = append(initial, fmt.Sprintf("m%d=%s", i, peers[i].url()))
	}
	for i := range n {
		o := memberOptions{
			Name: fmt.Sprintf("m%d", i), Dir: t.TempDir(), Client: clients[i].url(), Peer: peers[i].url(), Initial: strings.Join(initial, ","),
		}
		client, peer := p.start(t, o)
		clients[i].open(client)
		peers[i].open(peer)
	}
	return p
}

// start starts a member and returns the addresses it listens on.
func (p *Processes) start(t testing.TB, o memberOptions) (client, peer string) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), memberEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting member %s: %v", o.Name, err)
	}
	p.commands = append(p.commands, cmd)
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill() // also ends a member that hangs
		_ = cmd.Wait()
	})
	if _, err := fmt.Fscan(bufio.NewReader(stdout), &client, &peer); err != nil {
		t.Fatalf("member %s did not print its addresses: %v", o.Name, err)
	}
	return client, peer
}

// Client connects to all members until the test ends.
func (p *Processes) Client(t testing.TB) *store.Client {
	t.Helper()
	return dial(t, p.endpoints...)
}

// Leader waits for a leader and returns its index. No member may hang.
func (p *Processes) Leader(t testing.TB) int {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: p.endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatalf("dialling the test etcd: %v", err)
	}
	defer c.Close()
	for deadline := time.Now().Add(readyTimeout); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		for i, e := range p.endpoints {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			s, err := c.Status(ctx, e)
			cancel()
			if err == nil && s.Leader == s.Header.MemberId {
				return i
			}
		}
	}
	t.Fatalf("no leader within %v", readyTimeout)
	return 0
}

// Hang stops a member from running. Its connections stay open and it accepts new ones.
func (p *Processes) Hang(t testing.TB, i int) { p.signal(t, i, syscall.SIGSTOP) }

// Resume continues a member that hangs.
func (p *Processes) Resume(t testing.TB, i int) { p.signal(t, i, syscall.SIGCONT) }

func (p *Processes) signal(t testing.TB, i int, s syscall.Signal) {
	t.Helper()
	if err := p.commands[i].Process.Signal(s); err != nil {
		t.Fatalf("sending %v to member %d: %v", s, i, err)
	}
}
