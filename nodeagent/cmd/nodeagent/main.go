// Command nodeagent runs a node's agent: it joins the fleet and runs the instances that are
// placed on this host.
package main

import (
	"context"
	"io"
	"net/http"
	"os"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/program"
	"github.com/orreryhq/orrery/libs/store/discovery"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent"
	templates "github.com/orreryhq/orrery/templatesvc/client"
)

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

func run(args, env []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "local" {
		return local(args[1:], env, stdout, stderr)
	}
	if len(args) > 0 && args[0] == nodeagent.GuardCommand {
		return nodeagent.Guard(os.Stdin, stdout, stderr)
	}
	if len(args) > 0 && args[0] == nodeagent.PaneCommand {
		return nodeagent.Pane(args[1:], stderr)
	}
	if len(args) > 0 && args[0] == "join" {
		return join(args[1:], stdout, stderr)
	}
	var s settings
	return program.Main(program.Spec{
		Name: "nodeagent", About: "Runs the instances placed on this host of an Orrery fleet. See \"nodeagent join help\" for how a host joins, and \"nodeagent local help\" for how to operate it while etcd is unavailable.",
		Into: &s, Common: &s.Settings, Offline: true, Gateways: &s.Gateways, KeepLog: &s.LogKeep,
		Build: func(e program.Env) ([]lifecycle.Component, error) { return build(&s, e) },
	}, args, env, stdout, stderr)
}

func build(s *settings, e program.Env) ([]lifecycle.Component, error) {
	others := s.Etcd.Endpoints
	if len(s.Gateways) > 0 {
		others = s.Gateways
	}
	if program.OnlyThisHost(s.Listen, s.AdvertiseURL, others) {
		e.Log.Warn("gateways on other hosts cannot reach this agent at its loopback address: set --listen or --advertise-url to an address of this host",
			"listen", s.Listen, "advertiseURL", s.AdvertiseURL, "others", others)
	}
	services := discovery.New(e.Client, "templatesvc")
	gateways := s.connectGateways(e)
	agent, err := nodeagent.New(nodeagent.Config{
		Store: e.Client, Node: fleet.NodeID(s.node()), DataDir: s.Data, RunDir: s.RunDir, Address: s.Address,
		Listen: s.Listen, AdvertiseURL: s.AdvertiseURL, Labels: s.Labels, Variables: s.Variables,
		SecretsDir: s.Secrets.Dir, SecretsEnvPrefix: s.Secrets.EnvPrefix, ProvidersDir: s.Providers.Dir,
		MemoryMiB: s.Memory, CPU: s.CPU, CacheMiB: s.Cache, FileVersionsMiB: s.FileVersions, BackupDir: s.BackupDir, Room: s.room(), APIURL: s.APIURL, ClusterSecret: s.Cluster.Secret, SealKey: s.Seal.Key, Peers: e.Peers,
		Templates: templates.New(templates.Config{
			Resolve: services.URLs,
			Secret:  e.Peers.Token(), Log: e.Log,
			HTTP: &http.Client{Transport: e.Peers.Transport(&http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true}, pki.Identity{Service: pki.Templates})},
		}),
		AskSecrets: gateways.askSecrets, Relay: gateways.relay, Gateways: s.Gateways, SessionTTL: s.Session.TTL, StopInstancesOnExit: s.StopInstances, OrphanGrace: s.OrphanGrace,
		InstanceUIDs: nodeagent.InstanceUIDs(s.InstanceUIDs, s.InstanceUser), InstanceUser: s.InstanceUser, RequireTenants: s.RequireTenants, Policy: s.policy(), StartParallel: s.StartParallel, Guard: nodeagent.OwnGuard(), Pane: nodeagent.OwnPane(), Version: telemetry.Version(), Now: e.Now,
		Log: e.Log, Records: e.Records, Metrics: e.Registry,
	})
	if err != nil {
		return nil, err
	}
	return append(gateways.components(), []lifecycle.Component{
		{Name: "discovery", Run: services.Run},
		{Name: "nodeagent", Run: agent.Run, StopTimeout: s.StopTimeout, Stop: agent.Stop(e.Asked)},
		{Name: "joined", Start: func(ctx context.Context) error {
			select {
			case <-agent.Ready():
				return nil
			case <-ctx.Done():
				return errs.Wrap("nodeagent.joined", ctx.Err())
			}
		}},
	}...), nil
}
