// Package site runs a whole Orrery as separate processes on one machine. Tests can kill,
// pause and restart each process. A proxy between any two processes that communicate lets
// tests break the network pair by pair.
//
// Where the machine allows it (Namespaces), every node has its own network namespace, so
// that nodes have the same ports as real hosts do. Processes reach each other only through
// the proxies:
//
//	service ── proxy (service × member) ──▶ etcd member
//	agent   ── proxy (agent × member) ──▶ etcd member       from inside its namespace
//	agent   ── proxy (agent × gateway) ──▶ gateway          instead, with certificates; and to each enforcer
//	agent   ── proxy (agent × templatesvc) ──▶ templatesvc  from inside its namespace
//	gateway ── proxy (agent) ──▶ agent                      into its namespace
//	agent   ── proxy (agent × agent) ──▶ agent              between namespaces
//
// With Wrap, gateways reach agents, and all reach template services, through proxies without namespaces too.
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
	"github.com/orreryhq/orrery/libs/pki"
)

// Options configure a site. Numbers of replicas are at least 1.
type Options struct {
	// Dir is the directory of all data.
	Dir      string
	Programs Programs
	// Members is the number of etcd members: 1 or 3.
	Members                                  int
	Schedulers, Enforcers, Gateways, Sources int
	Nodes                                    int
	// TTL is the TTL of all sessions. 0 means the services' default.
	TTL time.Duration
	// Tick is the heartbeat interval of etcd; an election takes ten to twenty. 0 means 30
	// ms, which fits the fault harness's TTL of 3 s as etcd's default of 100 ms fits a TTL
	// of 10 s.
	Tick time.Duration
	// MemoryMiB and CPU are each node's capacity.
	MemoryMiB, CPU int
	// DataDir returns the data directory of a node. Nil means a directory below Dir.
	DataDir func(node string) string
	// StopInstances makes agents stop their instances when they end.
	StopInstances bool
	// KeepInstances leaves the instances running at the end.
	KeepInstances bool
	// Namespaces gives each node its own network namespace.
	Namespaces bool
	// Certificates gives each service a certificate, so that the calls between services are encrypted, and
	// agents use etcd through gateways. Without, they are authenticated by the cluster secret.
	Certificates bool
	// Wrap replaces how the proxy of a connection reaches its target, so that a test sees or changes what passes.
	// With it, also the connections to agents and template services go through proxies, and etcd uses TLS. It
	// needs Certificates, and no Namespaces.
	Wrap func(p Pair, dial proxy.Dial) proxy.Dial
	// Clocks are by how much the clocks of processes are ahead, for each of their runs in
	// turn.
	Clocks map[string][]time.Duration
}

// Site is a running Orrery.
type Site struct {
	o       Options
	members []*Member
	// services are all processes except etcd's, in the order of their start.
	services []*Process
	nodes    []*Node
	gateways []string
	// sources maps templatesvc's replicas to their addresses.
	sources map[string]string
	links   map[Pair]*proxy.Proxy
	spaces  []*Namespace
	// authority issues the certificates of the services, nodeAuthority those of agents that use etcd through
	// gateways; nil before the first one.
	authority, nodeAuthority *pki.Authority
	// forNodes are the addresses at which gateways and enforcers serve nodes, by their names.
	forNodes map[string]string
}

// Pair is a connection between two processes; From is the client.
type Pair struct{ From, To string }

// Member is a member of etcd.
type Member struct {
	*Process
	client, peer string
}

// Node is a host with its agent.
type Node struct {
	*Process
	// ID is the node's ID, and DataDir the agent's data directory.
	ID, DataDir string
	// Space is the node's namespace; nil when it has none.
	Space *Namespace
	// address leads into the namespace, from other namespaces and from outside.
	address string
}

// Start starts all processes without waiting until they are ready. Close the site, also
// after an error.
func Start(ctx context.Context, o Options) (*Site, error) {
	s := &Site{o: o, links: map[Pair]*proxy.Proxy{}, sources: map[string]string{}, forNodes: map[string]string{}}
	for _, dir := range []string{s.path("logs"), s.path("etcd"), s.path("templates")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return s, err
		}
	}
	if err := os.WriteFile(s.SecretFile(), []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		return s, err
	}
	if err := os.WriteFile(s.SealKeyFile(), []byte("fedcba9876543210fedcba9876543210"), 0o600); err != nil {
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

// StartEtcd starts only the etcd members.
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

// Members returns the etcd members.
func (s *Site) Members() []*Member { return s.members }

// Nodes returns the nodes.
func (s *Site) Nodes() []*Node { return s.nodes }

// Endpoints returns the members' own addresses, which bypass all proxies.
func (s *Site) Endpoints() []string {
	var out []string
	for _, m := range s.members {
		out = append(out, s.etcdScheme()+m.client)
	}
	return out
}

// Gateways returns the base URLs of the API.
func (s *Site) Gateways() []string { return s.gateways }

// ForNodes returns the URL at which a gateway or an enforcer serves nodes.
func (s *Site) ForNodes(name string) string { return "https://" + s.forNodes[name] }

// TemplateDir returns the directory from which templates are published.
func (s *Site) TemplateDir() string { return s.path("templates") }

// PasswordFile returns the file with the admin's password.
func (s *Site) PasswordFile() string { return s.path("admin-password") }

// SecretFile returns the file with the cluster's secret.
func (s *Site) SecretFile() string { return s.path("cluster-secret") }

// SealKeyFile returns the file with the key that wraps the keys which seal secrets.
func (s *Site) SealKeyFile() string { return s.path("seal-key") }

// LogDir returns the directory with each process's log.
func (s *Site) LogDir() string { return s.path("logs") }

// Process returns a process by name, or nil.
func (s *Site) Process(name string) *Process {
	for _, p := range s.Processes() {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Processes returns all processes.
func (s *Site) Processes() []*Process {
	out := slices.Clone(s.services)
	for _, m := range s.members {
		out = append(out, m.Process)
	}
	return out
}

// Node returns a node by ID, or nil.
func (s *Site) Node(id string) *Node {
	for _, n := range s.nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// AllLinks returns all connections.
func (s *Site) AllLinks() []Pair { return slices.Collect(maps.Keys(s.links)) }

// Link returns the proxy of a connection, or nil.
func (s *Site) Link(p Pair) *proxy.Proxy { return s.links[p] }

// Links returns the connections from a process to all etcd members.
func (s *Site) Links(process string) []Pair {
	var out []Pair
	for _, m := range s.members {
		out = append(out, Pair{From: process, To: m.Name})
	}
	return out
}

// closing is the order in which programs are stopped: first the ones that decide, then the
// nodes, then their dependencies.
var closing = []string{"enforcer", "scheduler", "node", "apigateway", "templatesvc"}

// Close stops everything: the nodes with all their processes first, etcd last. The error
// lists the processes that ended badly.
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

// Address returns a free loopback address that stays free while its process is down,
// because it is outside the range of ephemeral ports.
func Address() (string, error) {
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10000+rand.IntN(20000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String(), nil
		}
	}
	return "", errors.New("no port between 10000 and 30000 is free")
}

// process creates a handle and starts the process.
func (s *Site) process(name, program string, space *Namespace, args ...string) (*Process, error) {
	p := &Process{
		Name: name, binary: s.o.Programs[program], args: args, namespace: space, log: s.path("logs", name+".log"), clocks: s.o.Clocks[name],
	}
	return p, p.Start()
}

// connect starts a proxy for a connection. It listens in the client's network.
func (s *Site) connect(p Pair, from *Namespace, at string, dial proxy.Dial) (string, error) {
	l, err := from.Listen(at)
	if err != nil {
		return "", err
	}
	if s.o.Wrap != nil {
		dial = s.o.Wrap(p, dial)
	}
	s.links[p] = proxy.New(l, dial)
	return s.links[p].Address(), nil
}

// endpoints starts proxies between a process and all etcd members.
func (s *Site) endpoints(process string, space *Namespace) (string, error) {
	var out []string
	for _, m := range s.members {
		at, err := s.connect(Pair{process, m.Name}, space, "127.0.0.1:0", dialer(m.client))
		if err != nil {
			return "", err
		}
		out = append(out, s.etcdScheme()+at)
	}
	return strings.Join(out, ","), nil
}

func dialer(address string) proxy.Dial {
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
}
