package cluster

import (
	"context"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/pki"
)

// processes runs etcd and the five services as separate processes, with one node.
type processes struct {
	t    testing.TB
	dir  string
	site *site.Site
	once sync.Once
}

func startProcesses(t testing.TB, o Options) Local {
	t.Helper()
	programs := site.Programs{}
	for _, pkg := range site.Packages() {
		programs[path.Base(pkg)] = Program(t, pkg)
	}
	p := &processes{t: t, dir: o.DataDir}
	t.Cleanup(p.reportLogs)
	var err error
	p.site, err = site.Start(Bounded(t), site.Options{
		Dir: o.DataDir, Programs: programs, Members: 1, Schedulers: 1, Enforcers: 1, Gateways: 1, Sources: 1, Nodes: 1, Certificates: !o.Plain, Wrap: o.Wrap,
		MemoryMiB: o.MemoryMiB, CPU: o.CPU, StopInstances: !o.KeepInstances, KeepInstances: o.KeepInstances,
	})
	t.Cleanup(p.Stop)
	if err != nil {
		t.Fatal(err)
	}
	p.awaitReady()
	return p
}

// Certify gives each service of a cluster that was started with Options.Plain a certificate, as an
// operator does it: one service after the other, each with a restart. It calls after each of them. It
// returns false if all services run in one process.
func Certify(c Local, after func(service string)) bool {
	p, ok := c.(*processes)
	if !ok {
		return false
	}
	for _, process := range p.site.Processes() {
		service, _, _ := strings.Cut(process.Name, "-")
		switch service {
		case pki.Etcd:
			continue
		case "node":
			service = pki.Agent
		}
		if err := process.Stop(); err != nil {
			p.t.Fatal(err)
		}
		process.AddFlags(p.Trust(pki.Identity{Service: service, Name: process.Name})...)
		if err := process.Start(); err != nil {
			p.t.Fatal(err)
		}
		after(process.Name)
	}
	p.awaitReady()
	return true
}

// Service returns the process of a service, such as enforcer-1. It is nil if all services run in one process.
func Service(c Local, name string) *site.Process {
	if p, ok := c.(*processes); ok {
		return p.site.Process(name)
	}
	return nil
}

// awaitReady waits until a login works and the node is online.
func (p *processes) awaitReady() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), await.Patience)
	defer cancel()
	var admin *Client
	await.That(p.t, "the services ready", func() string {
		for _, process := range p.site.Processes() {
			if !process.Running() {
				p.t.Fatalf("%s ended: %v", process.Name, process.Ended())
			}
		}
		if admin == nil {
			if _, err := os.Stat(p.PasswordFile()); err != nil {
				return err.Error()
			}
			reply, err := Anonymous(p.t, p).Try(ctx, http.MethodGet, "/readyz", nil)
			if err != nil {
				return "gateway: " + err.Error()
			}
			if reply.Status != http.StatusOK {
				return "gateway: " + string(reply.Body)
			}
			admin = Login(p.t, p)
		}
		var node struct{ Status string }
		reply := admin.Do(http.MethodGet, "/api/v1/nodes/node-1", nil)
		if reply.Status != http.StatusOK {
			return string(reply.Body)
		}
		if reply.OK(http.StatusOK, &node); node.Status != "ONLINE" {
			return node.Status
		}
		return ""
	})
}

func (p *processes) API() string          { return p.site.Gateways()[0] }
func (p *processes) DataDir() string      { return p.dir }
func (p *processes) TemplateDir() string  { return p.site.TemplateDir() }
func (p *processes) PasswordFile() string { return p.site.PasswordFile() }
func (p *processes) Etcd() string         { return strings.Join(p.site.Endpoints(), ",") }
func (p *processes) SecretFile() string   { return p.site.SecretFile() }
func (p *processes) SealKeyFile() string  { return p.site.SealKeyFile() }

func (p *processes) Trust(who pki.Identity) []string {
	path, err := p.site.Certify(who)
	if err != nil {
		p.t.Fatal(err)
	}
	return []string{"--trust-file", path}
}

func (p *processes) Agent(id string) []string {
	args, err := p.site.Agent(id, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return args
}

// Metrics queries the admin listeners of all programs except etcd.
func (p *processes) Metrics() string {
	p.t.Helper()
	var all []byte
	for _, process := range p.site.Processes() {
		if strings.HasPrefix(process.Name, "etcd") {
			continue
		}
		text, err := process.Metrics(Bounded(p.t))
		if err != nil {
			p.t.Fatal(err)
		}
		all = append(all, text...)
	}
	return string(all)
}

// Stop stops the programs one by one: first the services that decide, then the node, etcd
// last.
func (p *processes) Stop() {
	p.once.Do(func() {
		if err := p.site.Close(); err != nil {
			p.t.Error(err)
		}
	})
}

// reportLogs prints the programs' logs if the test failed.
func (p *processes) reportLogs() {
	if !p.t.Failed() || p.site == nil {
		return
	}
	logs, _ := filepath.Glob(filepath.Join(p.site.LogDir(), "*.log"))
	for _, name := range logs {
		b, err := os.ReadFile(name)
		if err != nil {
			b = []byte(err.Error())
		}
		p.t.Logf("---- %s\n%s", filepath.Base(name), strings.TrimSpace(string(b)))
	}
}
