// Command scheduler runs the scheduler as a separate process.
package main

import (
	"context"
	"io"
	"os"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/memory"
	"github.com/orreryhq/orrery/libs/program"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/scheduler"
)

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

// settings are the operator's settings.
type settings struct {
	program.Settings
	Listen       string `config:"listen" default:"127.0.0.1:0" usage:"address gateways ask why and what-if at; port 0 picks a free one"`
	AdvertiseURL string `config:"advertise-url" usage:"URL gateways reach that address by; empty: derived from listen, with the host's name where it listens on all addresses"`
	MaxCPU       int    `config:"max-cpu" default:"95" usage:"percent of a node's processors in use, as its agent measures, above which it takes nothing new while another node is below; 100: no bound"`
	Memory       struct {
		Budget int `config:"budget" default:"1024" usage:"MiB of heap this process may use to spare processor time; no limit: a larger fleet gets what it needs. 0: collect garbage as often as Go does by default. Without effect where GOGC is set"`
	} `config:"memory"`
}

// Validate returns an error for each invalid setting.
func (s *settings) Validate() []error {
	problems := append(s.Settings.Validate(), s.RequirePeers()...)
	if s.MaxCPU < 1 || s.MaxCPU > 100 {
		problems = append(problems, errs.Field("max-cpu", "must be between 1 and 100 (no bound), in percent"))
	}
	if s.Memory.Budget < 0 {
		problems = append(problems, errs.Field("memory.budget", "must be 0 or more, in MiB"))
	}
	return problems
}

func run(args, env []string, stdout, stderr io.Writer) int {
	var s settings
	return program.Main(program.Spec{
		Name: "scheduler", About: "Decides on which node each instance of an Orrery fleet runs, and says why the rest waits.",
		Into: &s, Common: &s.Settings, Follows: scheduler.Kinds(),
		Build: func(e program.Env) ([]lifecycle.Component, error) { return build(&s, e) },
	}, args, env, stdout, stderr)
}

func build(s *settings, e program.Env) ([]lifecycle.Component, error) {
	service, err := scheduler.New(scheduler.Config{
		Store: e.Client, View: e.View, Log: e.Log, Metrics: e.Registry, Replica: e.Replica,
		Version: telemetry.Version(), Now: e.Now, SessionTTL: s.Session.TTL,
		Peers: e.Peers, Listen: s.Listen, AdvertiseURL: s.AdvertiseURL, MaxCPUPercent: s.MaxCPU,
	})
	if err != nil {
		return nil, err
	}
	return append(heap(s.Memory.Budget), lifecycle.Component{Name: "scheduler", Run: service.Run}), nil
}

// heap returns a component that applies the memory budget to the garbage collector. It
// returns none when the budget is 0 or GOGC is set.
func heap(budgetMiB int) []lifecycle.Component {
	if budgetMiB == 0 || os.Getenv("GOGC") != "" {
		return nil
	}
	return []lifecycle.Component{{Name: "heap", Run: func(ctx context.Context) error { return memory.Spend(ctx, uint64(budgetMiB)*memory.MiB) }}}
}
