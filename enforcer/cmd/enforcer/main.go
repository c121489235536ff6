// Command enforcer runs the enforcer as a process of its own: it keeps the counts
// of the groups it owns, in the etcd it is pointed at.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/orreryhq/orrery/enforcer"
	"github.com/orreryhq/orrery/libs/config"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
)

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

func run(args, env []string, stdout, stderr io.Writer) int {
	var s settings
	return config.Main(config.Options{
		Name: "enforcer", About: "Keeps the counts of an Orrery fleet: starts what is missing, replaces what crashed, stops what is too many.",
		Version: telemetry.Version(), Args: args, Env: env, Into: &s, Stdout: stdout,
	}, stderr, func(config.Loaded) error { return serve(s, stderr) })
}

// serve wires the service and runs it until a signal.
func serve(s settings, stderr io.Writer) error {
	replica := s.replica()
	log, err := telemetry.NewLogger(telemetry.LogOptions{Service: "enforcer", Replica: replica, Level: s.LogLevel, Format: s.LogFormat, Writer: stderr})
	if err != nil {
		return err
	}
	registry, err := telemetry.NewRegistry("enforcer", telemetry.Version())
	if err != nil {
		return err
	}
	client, err := store.Dial(s.Etcd.Endpoints, store.Options{Log: log})
	if err != nil {
		return err
	}
	defer client.Close()
	v := view.New(client, log)
	service, err := enforcer.New(enforcer.Config{
		Store: client, View: v, Log: log, Metrics: registry, Replica: replica, Version: telemetry.Version(),
		SessionTTL: s.Session.TTL, KeepFor: s.Records.Age, KeepRecords: s.Records.Count,
	})
	if err != nil {
		return err
	}
	gates := new(lifecycle.Gates)
	admin := telemetry.NewAdmin(telemetry.AdminOptions{Address: s.AdminAddress, Gatherer: registry, Ready: gates.Ready, Log: log})

	ctx, done := lifecycle.WithSignals(context.Background(), log, os.Exit)
	defer done()
	return lifecycle.Run(ctx, log,
		admin.Component(),
		lifecycle.Component{Name: "store", Start: func(ctx context.Context) error { return join(ctx, client, log) }},
		lifecycle.Component{Name: "view", Run: v.Run},
		lifecycle.Component{Name: "synced", Start: v.Synced},
		lifecycle.Component{Name: "enforcer", Run: service.Run},
		gates.Component(),
	)
}

// joinTimeout bounds one attempt to reach etcd.
const joinTimeout = 5 * time.Second

// join waits for etcd and makes sure that this build knows its schema.
func join(ctx context.Context, client *store.Client, log *slog.Logger) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, joinTimeout)
		_, err := client.Join(attempt, time.Now())
		cancel()
		switch {
		case ctx.Err() != nil:
			return errs.Wrap("join", ctx.Err())
		case err == nil || !errs.Is(err, errs.Unavailable):
			return err
		}
		log.Warn("etcd does not answer, trying again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
