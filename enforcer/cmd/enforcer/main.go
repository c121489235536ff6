// Command enforcer runs the enforcer as a separate process.
package main

import (
	"io"
	"os"
	"time"

	"github.com/orreryhq/orrery/enforcer"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/program"
	"github.com/orreryhq/orrery/libs/telemetry"
)

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

// settings are the operator's settings.
type settings struct {
	program.Settings
	Listen       string `config:"listen" default:"127.0.0.1:0" usage:"address gateways ask about scaling at; port 0 picks a free one"`
	AdvertiseURL string `config:"advertise-url" usage:"URL gateways reach that address by; empty: derived from listen, with the host's name where it listens on all addresses"`
	Nodes        struct {
		Listen string `config:"listen" usage:"address at which this enforcer serves etcd, with the rights of a node, to nodes that joined with a token, so that they need no gateway to stay alive; needs trust.file; empty: it serves none"`
		URL    string `config:"url" usage:"URL nodes reach that address by; empty: derived from nodes.listen, with the host's name if it listens on all addresses"`
	} `config:"nodes"`
	Records struct {
		Age   time.Duration `config:"age" default:"1h" usage:"how long records of finished instances are kept"`
		Count int           `config:"count" default:"20" usage:"how many of them are kept per group; at least 1"`
	} `config:"records"`
	MassLoss struct {
		Nodes   int           `config:"nodes" default:"5" usage:"with at least this many nodes lost at once, and"`
		Percent int           `config:"percent" default:"50" usage:"more than this share of all, nothing is replaced until more are back; 100: never wait"`
		Wait    time.Duration `config:"wait" default:"0s" usage:"how long the instances of a lost node wait for further losses before they are replaced; 0s: a third of the node's session TTL; a fleet of fewer nodes than mass-loss-nodes may set 1ms"`
	} `config:"mass-loss"`
}

// Validate returns an error for each invalid setting.
func (s *settings) Validate() []error {
	problems := s.Settings.Validate()
	if s.Records.Age <= 0 {
		problems = append(problems, errs.Field("records.age", "must be positive"))
	}
	if s.Records.Count < 1 {
		problems = append(problems, errs.Field("records.count", "must be at least 1"))
	}
	if s.MassLoss.Nodes < 1 {
		problems = append(problems, errs.Field("mass-loss.nodes", "must be at least 1"))
	}
	if s.MassLoss.Percent < 1 || s.MassLoss.Percent > 100 {
		problems = append(problems, errs.Field("mass-loss.percent", "must be 1 to 100"))
	}
	if s.MassLoss.Wait < 0 {
		problems = append(problems, errs.Field("mass-loss.wait", "must not be negative"))
	}
	return problems
}

func run(args, env []string, stdout, stderr io.Writer) int {
	var s settings
	return program.Main(program.Spec{
		Name: "enforcer", About: "Keeps the counts of an Orrery fleet: starts what is missing, replaces what crashed, stops what is too many.",
		Into: &s, Common: &s.Settings, Follows: enforcer.Kinds(),
		Build: func(e program.Env) ([]lifecycle.Component, error) { return build(&s, e) },
	}, args, env, stdout, stderr)
}

func build(s *settings, e program.Env) ([]lifecycle.Component, error) {
	if len(s.RequirePeers()) > 0 {
		e.Peers = nil // without them it answers no questions
	}
	service, err := enforcer.New(enforcer.Config{
		Store: e.Client, View: e.View, Log: e.Log, Metrics: e.Registry, Replica: e.Replica, Version: telemetry.Version(), Now: e.Now,
		Peers: e.Peers, Listen: s.Listen, AdvertiseURL: s.AdvertiseURL,
		NodesListen: s.Nodes.Listen, NodesURL: s.Nodes.URL, Secret: s.Cluster.Secret,
		SessionTTL: s.Session.TTL, KeepFor: s.Records.Age, KeepRecords: s.Records.Count,
		MassLossNodes: s.MassLoss.Nodes, MassLossPercent: s.MassLoss.Percent, MassLossWait: s.MassLoss.Wait,
	})
	if err != nil {
		return nil, err
	}
	return []lifecycle.Component{{Name: "enforcer", Run: service.Run}}, nil
}
