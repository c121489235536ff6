// Package program is what every service's own program does around its service:
// read the settings, connect to etcd, watch it, serve the admin listener, run
// until a signal and stop in reverse.
//
// A service's main says which settings it adds and which components it runs
// between the view and the readiness gate; see Spec.
package program

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/clock"
	"github.com/orreryhq/orrery/libs/config"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// Settings are the settings every service has. Embed it in the service's own.
type Settings struct {
	telemetry.Config
	// Replica is this process' name among its service's replicas; see ReplicaName.
	Replica string `config:"replica" usage:"name of this process among its service's replicas; empty: the host's name and a random part"`
	Etcd    struct {
		Endpoints []string `config:"endpoints" default:"http://127.0.0.1:2379" usage:"where etcd listens"`
		MaxOps    int      `config:"max-ops" default:"128" usage:"etcd's --max-txn-ops; never more than that"`
	} `config:"etcd"`
	Session struct {
		TTL time.Duration `config:"ttl" default:"10s" usage:"how long others wait for this replica when it died; at least 1s"`
	} `config:"session"`
	Cluster struct {
		Secret string `config:"secret" secret:"true" usage:"secret shared by all services, for the calls between them; at least 32 characters"`
	} `config:"cluster"`
}

// maxMaxOps bounds etcd.max-ops: what etcd does in one transaction holds up everybody else.
const maxMaxOps = 1 << 14

// Validate names the settings that cannot be used.
func (s *Settings) Validate() []error {
	problems := s.Config.Validate()
	check := func(ok bool, field, message string) {
		if !ok {
			problems = append(problems, errs.Field(field, "%s", message))
		}
	}
	check(len(s.Etcd.Endpoints) > 0, "etcd.endpoints", "must name at least one address of etcd")
	check(s.Etcd.MaxOps >= store.DefaultMaxOps && s.Etcd.MaxOps <= maxMaxOps, "etcd.max-ops", fmt.Sprintf("must be between %d, which is etcd's own, and %d", store.DefaultMaxOps, maxMaxOps))
	check(s.Session.TTL >= time.Second, "session.ttl", "must be at least 1s")
	check(!strings.Contains(s.Replica, "/"), "replica", "must not contain a slash")
	return problems
}

// RequireSecret is a problem unless the cluster's secret is given: for services that speak to others.
func (s *Settings) RequireSecret() []error {
	if len(s.Cluster.Secret) >= 32 {
		return nil
	}
	return []error{errs.Field("cluster.secret", "must have at least 32 characters and be the same for all services: write one into a file (openssl rand -hex 32 > FILE) and pass --cluster-secret-file FILE")}
}

// Env is what a service is wired from.
type Env struct {
	Client *store.Client
	View   *view.View
	Log    *slog.Logger
	// Records are the last records of Log; nil where Spec.KeepLog is.
	Records  *telemetry.Ring
	Registry *prometheus.Registry
	// Replica is the name in force, given or made up.
	Replica string
	// Meta identifies the cluster; filled when etcd was reached, before the service's components start.
	Meta *fleet.Meta
	// Gates hold readiness back until what a service opens with them is there.
	Gates *lifecycle.Gates
	// Now reads the wall clock, with a monotonic reading; see clock.Variable.
	Now func() time.Time
	// Asked reports whether the program was asked to end; false while it runs and when
	// it ends because something failed.
	Asked func() bool
}

// Spec describes a service's program.
type Spec struct {
	Name, About string
	// Into is the service's settings, a pointer to a struct that embeds Settings;
	// Common points at that embedded part.
	Into   any
	Common *Settings
	// NoView is for services that do not need to see the whole fleet: Env has no View then.
	NoView bool
	// Offline is for services whose work must begin though etcd is away. They are
	// built and started at once, check the schema themselves (store.Client.Join) when
	// they first reach etcd, and leave Env.Meta unfilled. They stay ready without etcd.
	Offline bool
	// KeepLog is how many records of its log a service keeps for those who read it while it
	// runs; read once the settings are. Nil keeps none.
	KeepLog *int
	// Build wires the service. Its components start once etcd is reached and the
	// view has been read, as far as the service asks for that.
	Build func(Env) ([]lifecycle.Component, error)
}

// Main runs the program and returns its exit code: 0 after a clean end, 1 when
// something failed, 2 when the user has to change a setting. With "healthcheck"
// as the first argument it asks the running program instead; see healthcheck.
func Main(s Spec, args, env []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == healthcheckWord {
		return healthcheck(s, args[1:], env, stdout, stderr)
	}
	now, err := clock.FromEnv(env)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", s.Name, err)
		return config.ExitUsage
	}
	return config.Main(config.Options{
		Name: s.Name, About: about(s), Version: telemetry.Version(), Args: args, Env: env, Into: s.Into, Stdout: stdout,
	}, stderr, func(config.Loaded) error { return serve(s, now, stderr) })
}

func about(s Spec) string {
	return s.About + "\n\nWith " + healthcheckWord + " as the first argument it asks the " + s.Name + " that runs with the same settings whether it is ready."
}

func serve(s Spec, now func() time.Time, stderr io.Writer) error {
	e := Env{Now: now, Replica: replicaName(s), Meta: &fleet.Meta{}, Gates: new(lifecycle.Gates)}
	if s.KeepLog != nil {
		e.Records = telemetry.NewRing(s.Name+"/"+e.Replica, *s.KeepLog)
	}
	var err error
	e.Log, err = telemetry.NewLogger(telemetry.LogOptions{Service: s.Name, Replica: e.Replica, Level: s.Common.LogLevel, Format: s.Common.LogFormat, Writer: stderr, Ring: e.Records})
	if err != nil {
		return err
	}
	if e.Registry, err = telemetry.NewRegistry(s.Name, telemetry.Version()); err != nil {
		return err
	}
	if e.Client, err = store.Dial(s.Common.Etcd.Endpoints, store.Options{MaxOps: s.Common.Etcd.MaxOps, Log: e.Log, Secret: s.Common.Cluster.Secret}); err != nil {
		return err
	}
	defer e.Client.Close()
	if !s.NoView {
		e.View = view.New(e.Client, e.Log)
	}
	ctx, done := lifecycle.WithSignals(context.Background(), e.Log, os.Exit)
	defer done()
	e.Asked = func() bool { return ctx.Err() != nil }
	components, err := s.Build(e)
	if err != nil {
		return err
	}
	admin := telemetry.NewAdmin(telemetry.AdminOptions{Address: s.Common.AdminAddress, Gatherer: e.Registry, Ready: func() (bool, []string) { return ready(s, e) }, Secret: s.Common.Cluster.Secret, Log: e.Log})
	all := []lifecycle.Component{admin.Component()}
	if s.Offline {
		all = append(all, lifecycle.Component{Name: "room", Run: func(ctx context.Context) error { return awaitRoom(ctx, e) }})
	} else {
		all = append(all, lifecycle.Component{Name: "store", Start: func(ctx context.Context) error { return join(ctx, e) }})
	}
	if !s.NoView {
		all = append(all, lifecycle.Component{Name: "view", Run: e.View.Run}, lifecycle.Component{Name: "synced", Start: e.View.Synced})
	}
	return lifecycle.Run(ctx, e.Log, append(append(all, components...), e.Gates.Component())...)
}

// ready is what /readyz says of every service: it waits for its gates, and for etcd
// when that is away; a service whose work goes on without etcd is ready then, and
// says so.
func ready(s Spec, e Env) (bool, []string) {
	ok, waiting := e.Gates.Ready()
	if since, away := e.Client.Away(); away {
		ok = ok && s.Offline
		waiting = append(waiting, "store: etcd not reachable since "+since.UTC().Format(time.RFC3339))
	}
	return ok, waiting
}

// replicaName is the given name, else one that no other process has.
func replicaName(s Spec) string {
	if s.Common.Replica != "" {
		return s.Common.Replica
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = s.Name
	}
	return host + "-" + strings.ToLower(rand.Text()[:6])
}

// joinTimeout bounds one attempt to reach etcd.
const joinTimeout = 5 * time.Second

// join waits for etcd and makes sure that this build knows its schema.
func join(ctx context.Context, e Env) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, joinTimeout)
		meta, err := e.Client.Join(attempt, e.Now())
		cancel()
		switch {
		case ctx.Err() != nil:
			return errs.Wrap("program.join", ctx.Err())
		case err == nil:
			*e.Meta = meta
			if err := warnOfRoom(ctx, e); err != nil {
				e.Log.Debug("etcd's room cannot be read", "error", err)
			}
			return nil
		case !errs.Is(err, errs.Unavailable):
			return err
		}
		e.Log.Warn("etcd does not answer, trying again", "error", err)
		pause.Jittered(ctx, time.Second)
	}
}

// warnOfRoom logs what will make etcd refuse writes.
func warnOfRoom(ctx context.Context, e Env) error {
	attempt, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	warnings, err := e.Client.RoomWarnings(attempt, e.Now())
	for _, w := range warnings {
		e.Log.Warn(w)
	}
	return errs.Wrap("program.warnOfRoom", err)
}

// awaitRoom is warnOfRoom for a program that does not wait for etcd: it warns when etcd
// answers, and then waits until ctx ends.
func awaitRoom(ctx context.Context, e Env) error {
	for warnOfRoom(ctx, e) != nil && pause.Jittered(ctx, joinTimeout) {
	}
	<-ctx.Done()
	return errs.Wrap("program.awaitRoom", ctx.Err())
}
