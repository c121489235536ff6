// Package site runs a whole Orrery as separate processes on one machine, with a
// handle on each to kill, pause and restart it, and with a proxy of ours between
// any two that speak to each other, so that the network can be hurt pair by pair.
//
// Every node has a network namespace of its own where the machine allows that
// (Namespaces), so that nodes have the same ports as real hosts have. Processes
// reach each other through the proxies alone:
//
//	service ── proxy (service × member) ──▶ etcd member
//	agent   ── proxy (agent × member) ──▶ etcd member       from inside its namespace
//	agent   ── proxy (agent × templatesvc) ──▶ templatesvc  from inside its namespace
//	gateway ── proxy (agent) ──▶ agent                      into its namespace
package site

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster/proxy"
)

// Options say what a site consists of. Numbers of replicas are at least 1.
type Options struct {
	// Dir is where everything lies.
	Dir      string
	Programs Programs
	// Members is the number of etcd members: 1 or 3.
	Members                                  int
	Schedulers, Enforcers, Gateways, Sources int
	Nodes                                    int
	// TTL of all sessions. 0 leaves the services' default.
	TTL time.Duration
	// Tick is the heartbeat interval of etcd; an election takes ten to twenty. 0 is 30 ms:
	// to the TTL of 3 s of the fault harness as etcd's default of 100 ms is to a TTL of 10 s.
	Tick time.Duration
	// MemoryMiB and CPU are each node's capacity.
	MemoryMiB, CPU int
	// DataDir is the data directory of a node; nil: below Dir.
	DataDir func(node string) string
	// StopInstances makes agents stop their instances when they end.
	StopInstances bool
	// KeepInstances leaves what runs on the nodes running at the end.
	KeepInstances bool
	// Namespaces gives each node a network of its own.
	Namespaces bool
	// Clocks are how far the clocks of processes are ahead, for each of their runs in turn.
	Clocks map[string][]time.Duration
}

// Site is a running Orrery.
type Site struct {
	o       Options
	members []*Member
	// services are all processes but etcd's, in the order they were started.
	services []*Process
	nodes    []*Node
	gateways []string
	// sources are the addresses of templatesvc's replicas by name.
	sources map[string]string
	links   map[Pair]*proxy.Proxy
	spaces  []*Namespace
}

// Pair names a line between two processes, from the one that connects.
type Pair struct{ From, To string }

// Member is a member of etcd.
type Member struct {
	*Process
	client, peer string
}

// Node is a host with its agent.
type Node struct {
	*Process
	// ID is the node's id, DataDir the agent's data directory.
	ID, DataDir string
	// Space is the node's network, nil when it has none of its own.
	Space *Namespace
}

// Start starts all processes; it does not wait until they are ready. A site that
// was started has to be closed, also after an error.
func Start(ctx context.Context, o Options) (*Site, error) {
	s := &Site{o: o, links: map[Pair]*proxy.Proxy{}, sources: map[string]string{}}
	for _, dir := range []string{s.path("logs"), s.path("etcd"), s.path("templates")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return s, err
		}
	}
	if err := os.WriteFile(s.SecretFile(), []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		return s, err
	}
	for _, step := range []func(context.Context) error{s.startEtcd, s.startServices, s.startNodes} {
		if err := step(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *Site) path(name ...string) string {
	return filepath.Join(append([]string{s.o.Dir}, name...)...)
}

// StartEtcd starts the members of etcd alone.
func StartEtcd(ctx context.Context, o Options) (*Site, error) {
	s := &Site{o: o}
	for _, dir := range []string{s.path("logs"), s.path("etcd")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := s.startEtcd(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Members are the members of etcd.
func (s *Site) Members() []*Member { return s.members }

// Nodes are the nodes.
func (s *Site) Nodes() []*Node { return s.nodes }

// Endpoints are the members' own addresses, past all proxies.
func (s *Site) Endpoints() []string {
	var out []string
	for _, m := range s.members {
		out = append(out, "http://"+m.client)
	}
	return out
}

// Gateways are the base URLs of the API.
func (s *Site) Gateways() []string { return s.gateways }

// TemplateDir is where templates are dropped in.
func (s *Site) TemplateDir() string { return s.path("templates") }

// PasswordFile holds the admin's password.
func (s *Site) PasswordFile() string { return s.path("admin-password") }

// SecretFile holds the cluster's secret.
func (s *Site) SecretFile() string { return s.path("cluster-secret") }

// LogDir holds each process' output.
func (s *Site) LogDir() string { return s.path("logs") }

// Process is a process by name; nil when there is none.
func (s *Site) Process(name string) *Process {
	for _, p := range s.Processes() {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Processes are all processes.
func (s *Site) Processes() []*Process {
	out := slices.Clone(s.services)
	for _, m := range s.members {
		out = append(out, m.Process)
	}
	return out
}

// Node is a node by id; nil when there is none.
func (s *Site) Node(id string) *Node {
	for _, n := range s.nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// AllLinks are all lines.
func (s *Site) AllLinks() []Pair { return slices.Collect(maps.Keys(s.links)) }

// Link is the proxy between a pair; nil when they do not speak.
func (s *Site) Link(p Pair) *proxy.Proxy { return s.links[p] }

// Links are the lines from a process to all members of etcd.
func (s *Site) Links(process string) []Pair {
	var out []Pair
	for _, m := range s.members {
		out = append(out, Pair{From: process, To: m.Name})
	}
	return out
}

// closing is the order in which programs are ended: first what decides, then the
// nodes, then what they need.
var closing = []string{"apigateway", "enforcer", "scheduler", "node", "templatesvc"}

// Close ends everything, the nodes with all that runs on them, etcd last. The error
// tells what ended badly.
func (s *Site) Close() error {
	var errs []error
	for _, l := range s.links {
		l.Set(proxy.Fault{})
	}
	for _, program := range closing {
		for _, p := range s.services {
			if strings.HasPrefix(p.Name, program+"-") {
				errs = append(errs, p.Stop())
			}
		}
	}
	for _, n := range s.nodes {
		if !s.o.KeepInstances {
			n.KillInstances()
		}
	}
	for _, m := range s.members {
		errs = append(errs, m.Stop())
	}
	for _, l := range s.links {
		l.Close()
	}
	for _, n := range s.spaces {
		n.Close()
	}
	return errors.Join(errs...)
}

// address is a free address on loopback that stays free while its process is
// away: outside the range that systems take ports of clients from.
func address() (string, error) {
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10000+rand.IntN(20000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String(), nil
		}
	}
	return "", errors.New("no port between 10000 and 30000 is free")
}

// process makes a handle and starts it.
func (s *Site) process(name, program string, space *Namespace, args ...string) (*Process, error) {
	p := &Process{
		Name: name, binary: s.o.Programs[program], args: args, namespace: space, log: s.path("logs", name+".log"), clocks: s.o.Clocks[name],
	}
	return p, p.Start()
}

// connect puts a proxy between a pair, listening in the connecting one's network.
func (s *Site) connect(p Pair, from *Namespace, at string, dial proxy.Dial) (string, error) {
	l, err := from.Listen(at)
	if err != nil {
		return "", err
	}
	s.links[p] = proxy.New(l, dial)
	return s.links[p].Address(), nil
}

// endpoints puts proxies between a process and all members.
func (s *Site) endpoints(process string, space *Namespace) (string, error) {
	var out []string
	for _, m := range s.members {
		at, err := s.connect(Pair{process, m.Name}, space, "127.0.0.1:0", dialer(m.client))
		if err != nil {
			return "", err
		}
		out = append(out, "http://"+at)
	}
	return strings.Join(out, ","), nil
}

func dialer(address string) proxy.Dial {
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
}
