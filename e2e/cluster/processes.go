package cluster

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// processes is etcd and the five services, each its own process.
type processes struct {
	t    testing.TB
	dir  string
	api  string
	keep bool
	once sync.Once
	// running are the started programs in order.
	running []*program
}

type program struct {
	name string
	cmd  *exec.Cmd
	log  *bytes.Buffer // read only after done
	done chan struct{}
	err  error
}

func startProcesses(t testing.TB, o Options) Cluster {
	t.Helper()
	p := &processes{t: t, dir: o.DataDir, keep: o.KeepInstances}
	t.Cleanup(p.reportLogs)
	for _, d := range []string{"templates", "etcd"} {
		if err := os.MkdirAll(filepath.Join(p.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(p.dir, "cluster-secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	ready := filepath.Join(p.dir, "etcd.ready")
	_ = os.Remove(ready)
	p.start("etcd", "./e2e/cmd/etcd", "-data", filepath.Join(p.dir, "etcd"), "-ready", ready)
	var endpoint string
	Eventually(t, "etcd serving", func() string {
		b, err := os.ReadFile(ready)
		if err != nil {
			return err.Error()
		}
		endpoint = string(b)
		return ""
	})
	listen := freePort(t)
	p.api = "http://" + listen
	common := []string{"--etcd-endpoints", endpoint, "--cluster-secret-file", secret, "--log-level", "info"}
	p.service("templatesvc", append(common, "--templates-dir", p.TemplateDir(), "--blobs-dir", filepath.Join(p.dir, "blobs")))
	p.service("scheduler", common)
	p.service("enforcer", common)
	p.service("apigateway", append(common, "--listen", listen, "--admin-password-file", p.PasswordFile()))
	agent := append(common, "--node", "node-1", "--data", filepath.Join(p.dir, "node"), "--api-url", p.api,
		fmt.Sprintf("--stop-instances=%v", !o.KeepInstances))
	if o.MemoryMiB > 0 {
		agent = append(agent, "--memory", fmt.Sprint(o.MemoryMiB))
	}
	if o.CPU > 0 {
		agent = append(agent, "--cpu", fmt.Sprint(o.CPU))
	}
	p.service("nodeagent", agent)
	p.awaitReady()
	return p
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (p *processes) service(name string, args []string) {
	p.t.Helper()
	p.start(name, "./"+name+"/cmd/"+name, args...)
}

func (p *processes) start(name, pkg string, args ...string) {
	p.t.Helper()
	pr := &program{name: name, cmd: exec.Command(Program(p.t, pkg), args...), log: &bytes.Buffer{}, done: make(chan struct{})}
	pr.cmd.Stdout, pr.cmd.Stderr = pr.log, pr.log
	pr.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := pr.cmd.Start(); err != nil {
		p.t.Fatalf("starting %s: %v", name, err)
	}
	go func() { pr.err = pr.cmd.Wait(); close(pr.done) }()
	p.running = append(p.running, pr)
}

// awaitReady waits until a login works and the node is online.
func (p *processes) awaitReady() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), Patience)
	defer cancel()
	var admin *Client
	Eventually(p.t, "the services ready", func() string {
		for _, pr := range p.running {
			select {
			case <-pr.done:
				p.t.Fatalf("%s ended: %v\n%s", pr.name, pr.err, pr.log)
			default:
			}
		}
		if admin == nil {
			if _, err := os.Stat(p.PasswordFile()); err != nil {
				return err.Error()
			}
			reply, err := Anonymous(p.t, p).Try(ctx, http.MethodGet, "/readyz", nil)
			if err != nil || reply.Status != 200 {
				return fmt.Sprint("gateway: ", err)
			}
			admin = Login(p.t, p)
		}
		var node struct{ Status string }
		reply := admin.Do(http.MethodGet, "/api/v1/nodes/node-1", nil)
		if reply.Status != 200 {
			return string(reply.Body)
		}
		if reply.OK(200, &node); node.Status != "ONLINE" {
			return node.Status
		}
		return ""
	})
}

func (p *processes) API() string          { return p.api }
func (p *processes) DataDir() string      { return p.dir }
func (p *processes) TemplateDir() string  { return filepath.Join(p.dir, "templates") }
func (p *processes) PasswordFile() string { return filepath.Join(p.dir, "admin-password") }

// Stop ends the programs one by one: first what decides, then the node, etcd last.
func (p *processes) Stop() {
	p.once.Do(func() {
		order := []string{"apigateway", "enforcer", "scheduler", "nodeagent", "templatesvc", "etcd"}
		for _, name := range order {
			for _, pr := range p.running {
				if pr.name == name {
					p.end(pr)
				}
			}
		}
	})
}

func (p *processes) end(pr *program) {
	_ = pr.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-pr.done:
		if pr.err != nil {
			p.t.Errorf("%s ended badly: %v", pr.name, pr.err)
		}
	case <-time.After(Patience):
		_ = pr.cmd.Process.Kill()
		<-pr.done
		p.t.Errorf("%s did not end when asked to", pr.name)
	}
}

// reportLogs prints what the programs logged when the test failed.
func (p *processes) reportLogs() {
	if !p.t.Failed() {
		return
	}
	for _, pr := range p.running {
		<-pr.done
		p.t.Logf("---- %s\n%s", pr.name, strings.TrimSpace(pr.log.String()))
	}
}
