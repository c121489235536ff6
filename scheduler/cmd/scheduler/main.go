// Command scheduler runs the scheduler as a process of its own: it places pending
// instances of the groups it owns, in the etcd it is pointed at.
package main

import (
	"io"
	"os"

	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/program"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/scheduler"
)

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

// settings are what an operator may set.
type settings struct {
	program.Settings
	Listen       string `config:"listen" default:"127.0.0.1:0" usage:"address gateways ask why and what-if at; port 0 picks a free one"`
	AdvertiseURL string `config:"advertise-url" usage:"URL gateways reach that address by; empty: derived from listen, with the host's name where it listens on all addresses"`
}

// Validate names the settings that cannot be used.
func (s *settings) Validate() []error { return append(s.Settings.Validate(), s.RequireSecret()...) }

func run(args, env []string, stdout, stderr io.Writer) int {
	var s settings
	return program.Main(program.Spec{
		Name: "scheduler", About: "Decides on which node each instance of an Orrery fleet runs, and says why the rest waits.",
		Into: &s, Common: &s.Settings,
		Build: func(e program.Env) ([]lifecycle.Component, error) { return build(&s, e) },
	}, args, env, stdout, stderr)
}

func build(s *settings, e program.Env) ([]lifecycle.Component, error) {
	service, err := scheduler.New(scheduler.Config{
		Store: e.Client, View: e.View, Log: e.Log, Metrics: e.Registry, Replica: e.Replica,
		Version: telemetry.Version(), SessionTTL: s.Session.TTL,
		ClusterSecret: s.Cluster.Secret, Listen: s.Listen, AdvertiseURL: s.AdvertiseURL,
	})
	if err != nil {
		return nil, err
	}
	return []lifecycle.Component{{Name: "scheduler", Run: service.Run}}, nil
}
