package site

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// agentAddress is the address of every agent in its namespace.
const agentAddress = "127.0.0.1:7070"

func (s *Site) startEtcd(ctx context.Context) error {
	var all []string
	for n := range s.o.Members {
		client, err := Address()
		if err != nil {
			return err
		}
		peer, err := Address()
		if err != nil {
			return err
		}
		m := &Member{Process: &Process{Name: fmt.Sprint("etcd-", n+1)}, client: client, peer: peer}
		s.members = append(s.members, m)
		all = append(all, m.Name+"=http://"+peer)
	}
	for _, m := range s.members {
		ready := s.path("etcd", m.Name+".ready")
		_ = os.Remove(ready) // left by an earlier start
		args := []string{
			"-name", m.Name, "-data", s.path("etcd", m.Name), "-ready", ready,
			"-client", m.client, "-peer", m.peer, "-members", strings.Join(all, ","), "-tick", cmp.Or(s.o.Tick, 30*time.Millisecond).String(),
		}
		secured, err := s.certifyEtcd()
		if err != nil {
			return err
		}
		p, err := s.process(m.Name, "etcd", nil, append(args, secured...)...)
		if m.Process = p; err != nil {
			return err
		}
	}
	return s.awaitEtcd(ctx)
}

// awaitEtcd waits until every member has served once.
func (s *Site) awaitEtcd(ctx context.Context) error {
	for _, m := range s.members {
		for {
			if _, err := os.Stat(s.path("etcd", m.Name+".ready")); err == nil {
				break
			}
			if !m.Running() {
				return fmt.Errorf("%s ended; see %s", m.Name, m.log)
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s did not serve: %w", m.Name, ctx.Err())
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return nil
}

// common returns the settings that all services have.
func (s *Site) common(program, name string, space *Namespace) ([]string, error) {
	endpoints, err := s.endpoints(name, space)
	if err != nil {
		return nil, err
	}
	args := []string{"--etcd-endpoints", endpoints, "--cluster-secret-file", s.SecretFile(), "--log-level", "debug"}
	trust, err := s.trust(program, name)
	return append(append(args, s.ttl()...), trust...), err
}

func (s *Site) startServices(context.Context) error {
	kinds := []struct {
		program string
		count   int
		own     func(name string) ([]string, error)
	}{
		{"templatesvc", s.o.Sources, s.source},
		{"scheduler", s.o.Schedulers, unbounded},
		{"enforcer", s.o.Enforcers, s.enforcer},
		{"apigateway", s.o.Gateways, s.gateway},
	}
	for _, k := range kinds {
		for n := range k.count {
			name := fmt.Sprint(k.program, "-", n+1)
			args, err := s.common(k.program, name, nil)
			if err != nil {
				return err
			}
			own, err := k.own(name)
			if err != nil {
				return err
			}
			p, err := s.process(name, k.program, nil, append(append(args, "--replica", name), own...)...)
			if err != nil {
				return err
			}
			s.services = append(s.services, p)
		}
	}
	return nil
}

func (s *Site) enforcer(name string) ([]string, error) { return s.serveNodes(name) }

// unbounded disables the load bound of schedulers, because all nodes of a site measure the
// same CPUs at different moments.
func unbounded(string) ([]string, error) { return []string{"--max-cpu", "100"}, nil }

func (s *Site) source(name string) ([]string, error) {
	at, err := Address()
	if err != nil {
		return nil, err
	}
	s.sources[name] = at
	args := []string{"--seal-key-file", s.SealKeyFile(), "--templates-dir", s.TemplateDir(), "--blobs-dir", s.path("blobs"), "--listen", at}
	if s.o.Wrap == nil {
		return args, nil
	}
	at, err = s.connect(Pair{"all", name}, nil, "127.0.0.1:0", dialer(at))
	return append(args, "--advertise-url", s.scheme()+at), err
}

func (s *Site) gateway(name string) ([]string, error) {
	at, err := Address()
	if err != nil {
		return nil, err
	}
	s.gateways = append(s.gateways, "http://"+at)
	nodes, err := s.serveNodes(name)
	if s.o.Certificates {
		nodes = append(nodes, "--nodes-authority", s.nodesFile(), "--services-authority", s.servicesFile())
	}
	return append(nodes, "--seal-key-file", s.SealKeyFile(), "--listen", at, "--admin-password-file", s.PasswordFile(), "--limits-anonymous", "0", "--limits-logins", "0"), err
}

func (s *Site) startNodes(context.Context) error {
	for n := range s.o.Nodes {
		if err := s.startNode(fmt.Sprint("node-", n+1)); err != nil {
			return err
		}
	}
	return s.connectNodes()
}

// connectNodes lets agents in namespaces reach each other at their advertised addresses.
func (s *Site) connectNodes() error {
	for _, from := range s.nodes {
		for _, to := range s.nodes {
			if from == to || to.Space == nil {
				continue
			}
			if _, err := s.connect(Pair{from.ID, to.ID}, from.Space, to.address, to.dialAgent); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Site) startNode(id string) error {
	node := &Node{ID: id, DataDir: s.path(id)}
	if s.o.DataDir != nil {
		node.DataDir = s.o.DataDir(id)
	}
	network, err := s.network(node)
	if err != nil {
		return err
	}
	args, err := s.Agent(id, node.Space)
	if err != nil {
		return err
	}
	args = append(append(args, network...), "--node", id, "--data", node.DataDir,
		"--api-url", s.gateways[0], fmt.Sprintf("--stop-instances=%v", s.o.StopInstances))
	if s.o.MemoryMiB > 0 {
		args = append(args, "--memory", fmt.Sprint(s.o.MemoryMiB))
	}
	if s.o.CPU > 0 {
		args = append(args, "--cpu", fmt.Sprint(s.o.CPU))
	}
	p, err := s.process(id, "nodeagent", node.Space, args...)
	if node.Process = p; err != nil {
		return err
	}
	s.services, s.nodes = append(s.services, p), append(s.nodes, node)
	return nil
}

// network creates a node's namespace and its connections in both directions, and returns
// the resulting settings.
func (s *Site) network(node *Node) ([]string, error) {
	if s.o.Wrap != nil {
		at, err := Address()
		if err != nil {
			return nil, err
		}
		advertised, err := s.connect(Pair{"gateways", node.ID}, nil, "127.0.0.1:0", dialer(at))
		return []string{"--listen", at, "--advertise-url", s.scheme() + advertised}, err
	}
	if !s.o.Namespaces {
		return []string{"--listen", "127.0.0.1:0"}, nil
	}
	space, err := NewNamespace()
	if err != nil {
		return nil, err
	}
	s.spaces, node.Space = append(s.spaces, space), space
	if node.address, err = Address(); err != nil {
		return nil, err
	}
	if _, err := s.connect(Pair{"gateways", node.ID}, nil, node.address, node.dialAgent); err != nil {
		return nil, err
	}
	for name, at := range s.sources {
		if _, err := s.connect(Pair{node.ID, name}, space, at, dialer(at)); err != nil {
			return nil, err
		}
	}
	return []string{"--listen", agentAddress, "--advertise-url", s.scheme() + node.address}, nil
}

// dialAgent connects to the agent of a node that has a namespace.
func (n *Node) dialAgent(ctx context.Context) (net.Conn, error) {
	return n.Space.Dial(ctx, agentAddress)
}

// Instances returns the node's processes other than its agent: those in its namespace, or
// without one, those that have an instance's mark and work below its data directory.
func (n *Node) Instances() []int {
	if n.Space != nil {
		return slices.DeleteFunc(n.Space.Processes(), func(pid int) bool { return pid == n.PID() })
	}
	var out []int
	dirs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range dirs {
		env, err := os.ReadFile(path)
		if err != nil || !strings.Contains("\x00"+string(env), "\x00ORRERY_NODE="+n.ID+"\x00") {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil && n.holds(pid) {
			out = append(out, pid)
		}
	}
	return out
}

// holds reports whether a process works below the node's data directory. Other sites may
// have nodes of the same name.
func (n *Node) holds(pid int) bool {
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return err == nil && strings.HasPrefix(strings.TrimSuffix(dir, " (deleted)"), n.DataDir+string(filepath.Separator))
}

// KillInstances kills all instances on the node at once, and returns their processes. It
// returns when none is left, because a process may have started another one before it died.
func (n *Node) KillInstances() []int {
	var killed []int
	for pids := n.Instances(); len(pids) > 0; pids = n.Instances() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		killed = append(killed, pids...)
	}
	return killed
}

// PowerCut kills the agent and all instances on the node at once, and returns the
// instances' processes.
func (n *Node) PowerCut() []int {
	n.Kill()
	return n.KillInstances()
}
