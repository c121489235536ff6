// Package program contains what every service's program does around its service: read the
// settings, connect to etcd, watch it, serve the admin listener, run until a signal and stop in
// reverse order.
//
// A service's main declares its own settings and the components to run between the view and the
// readiness gate; see Spec.
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
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/trust"
)

// Settings contains the settings every service has. Embed it in the service's own settings.
type Settings struct {
	telemetry.Config
	// Replica is the name of this process among its service's replicas; see ReplicaName.
	Replica string `config:"replica" usage:"name of this process among its service's replicas; empty: the host's name and a random part"`
	Etcd    struct {
		Endpoints []string `config:"endpoints" default:"http://127.0.0.1:2379" usage:"where etcd listens; all with https:// or none"`
		MaxOps    int      `config:"max-ops" default:"128" usage:"etcd's --max-txn-ops; never more than that"`
		CA        string   `config:"ca" usage:"file with the certificates of the authorities that issue etcd's, in PEM; empty: those of trust.file, which must then have issued it for etcd by orrery pki issue; without it those of the host"`
		Cert      string   `config:"cert" usage:"file with the certificate that is presented to etcd, in PEM; empty: that of trust.file"`
		Key       string   `config:"key" usage:"file with the private key of etcd.cert, in PEM"`
		Username  string   `config:"username" usage:"user to log in to etcd as; empty: no login"`
		Password  string   `config:"password" secret:"true" usage:"password of etcd.username"`
	} `config:"etcd"`
	Session struct {
		TTL time.Duration `config:"ttl" default:"10s" usage:"how long others wait for this replica when it died; at least 1s"`
	} `config:"session"`
	Cluster struct {
		Secret string `config:"secret" secret:"true" usage:"secret shared by all services; without trust.file it authenticates the calls between services, and without seal.key it seals secrets in etcd; at least 32 characters"`
	} `config:"cluster"`
	Trust struct {
		File string `config:"file" usage:"file with this service's certificate, its key and the authorities that it trusts, in PEM, as orrery pki issue writes it; it encrypts and authenticates the calls between services, and is read again when it changes; empty: the cluster secret authenticates them, without encryption"`
	} `config:"trust"`
}

// maxMaxOps bounds etcd.max-ops, because large transactions block all other clients.
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
	problems = append(problems, s.validateEtcd()...)
	check(s.Session.TTL >= time.Second, "session.ttl", "must be at least 1s")
	check(!strings.Contains(s.Replica, "/"), "replica", "must not contain a slash")
	return problems
}

// RequireSecret returns an error unless the cluster secret is set. It is for services that seal or
// open secrets.
func (s *Settings) RequireSecret() []error {
	if len(s.Cluster.Secret) >= 32 {
		return nil
	}
	return []error{errs.Field("cluster.secret", "must have at least 32 characters and be the same for all services: write one into a file (openssl rand -hex 32 > FILE) and pass --cluster-secret-file FILE")}
}

// Seal are the settings of services that seal or open secrets in etcd.
type Seal struct {
	Key      string `config:"key" secret:"true" usage:"key that wraps the keys which seal secrets in etcd, the same for all gateways and template services, and for agents with the cluster secret; at least 32 characters; further lines may have previous keys; an armored file of age is decrypted with seal.identity; empty: the cluster secret seals"`
	Identity string `config:"identity" secret:"true" usage:"identities of age, or of its plugins, one per line; they decrypt seal.key if that is an armored file of age"`
}

// Validate decrypts Key if it is encrypted, and names the setting that cannot be used.
func (s *Seal) Validate() []error {
	keys, err := seal.DecryptKeys(s.Key, s.Identity, func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
	if err == nil {
		err = seal.CheckKeys(keys)
	}
	if err != nil { // the settings add the section to the field
		return []error{errs.Field(strings.TrimPrefix(errs.FieldOf(err), "seal."), "%s", err.Error())}
	}
	s.Key, s.Identity = keys, ""
	return nil
}

// RequirePeers returns an error unless the service can authenticate its callers, by certificates or by
// the cluster secret.
func (s *Settings) RequirePeers() []error {
	if s.Trust.File != "" {
		return nil
	}
	return s.RequireSecret()
}

// Env contains what a service is built from.
type Env struct {
	Client *store.Client
	// Peers authenticates the calls between services.
	Peers *trust.Peers
	View  *view.View
	Log   *slog.Logger
	// Records are the last records of Log. It is nil unless Spec.KeepLog is set.
	Records  *telemetry.Ring
	Registry *prometheus.Registry
	// Replica is the effective name, either configured or generated.
	Replica string
	// Meta identifies the cluster. It is filled before the service's components start.
	Meta *cluster.Meta
	// Gates lets a service delay its readiness.
	Gates *lifecycle.Gates
	// Now returns the wall clock with a monotonic reading; see clock.Variable.
	Now func() time.Time
	// Asked reports whether the program was asked to end. It is false while it runs and when it
	// ends because of a failure.
	Asked func() bool
}

// Spec describes a service's program.
type Spec struct {
	Name, About string
	// Into is the service's settings, a pointer to a struct that embeds Settings. Common points to
	// that embedded part.
	Into   any
	Common *Settings
	// Follows are the kinds of records in Env.View. Env has no View if it is empty.
	Follows []view.Kind
	// Offline is for services that must start without etcd. Their components are started at once.
	// They check the schema themselves (store.Client.Join) when they first reach etcd, do not get
	// Env.Meta, and stay ready without etcd.
	Offline bool
	// Gateways are the URLs through which an agent uses etcd, and renews its certificate. It is read after
	// the settings. Nil, or no URL, means that the service uses etcd.endpoints.
	Gateways *[]string
	// Authority is the file of the authority by which a gateway renews its own certificate. It is read after the
	// settings. Nil, or no file, means that the service asks gateways to renew it.
	Authority *string
	// KeepLog is the number of log records kept for readers. It is read after the settings. Nil
	// keeps none.
	KeepLog *int
	// Build builds the service. Unless Offline says otherwise, its components start once
	// etcd was reached and the view was read.
	Build func(Env) ([]lifecycle.Component, error)
}

// Main runs the program and returns its exit code: 0 after a clean end, 1 after a failure, 2 if a
// setting must be corrected. With "healthcheck" as the first argument it asks the running program
// instead; see healthcheck.
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
	}, stderr, func() error { return serve(s, now, stderr) })
}

func about(s Spec) string {
	return s.About + "\n\nWith " + healthcheckWord + " as the first argument it asks the " + s.Name + " that runs with the same settings whether it is ready."
}

func serve(s Spec, now func() time.Time, stderr io.Writer) error {
	e := Env{Now: now, Replica: replicaName(s), Meta: &cluster.Meta{}, Gates: new(lifecycle.Gates)}
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
	if e.Peers, err = openPeers(s, e); err != nil {
		return err
	}
	if e.Client, err = dial(s, e); err != nil {
		return err
	}
	defer e.Client.Close()
	if len(s.Follows) > 0 {
		e.View = view.New(e.Client, e.Log, s.Follows...)
	}
	ctx, done := lifecycle.WithSignals(context.Background(), e.Log, os.Exit)
	defer done()
	e.Asked = func() bool { return ctx.Err() != nil }
	components, err := s.Build(e)
	if err != nil {
		return err
	}
	admin := telemetry.NewAdmin(telemetry.AdminOptions{Address: s.Common.AdminAddress, Gatherer: e.Registry, Ready: func() (bool, []string) { return ready(s, e) }, Secret: s.Common.Cluster.Secret, Log: e.Log})
	if err := watchExpiry(e); err != nil {
		return err
	}
	all := []lifecycle.Component{admin.Component()}
	if s.Offline && !s.throughGateways() { // which do not serve the size of etcd
		all = append(all, lifecycle.Component{Name: "room", Run: func(ctx context.Context) error { return awaitRoom(ctx, e) }})
	} else if !s.Offline {
		all = append(all, lifecycle.Component{Name: "store", Start: func(ctx context.Context) error { return join(ctx, e) }})
	}
	if e.View != nil {
		all = append(all, lifecycle.Component{Name: "view", Run: e.View.Run}, lifecycle.Component{Name: "synced", Start: e.View.Synced})
	}
	all = append(all, renewal(s, e)...)
	return lifecycle.Run(ctx, e.Log, append(append(all, components...), e.Gates.Component())...)
}

// ready is the readiness of every service: all its gates are open and etcd is reachable. An
// Offline service stays ready without etcd and says so.
func ready(s Spec, e Env) (bool, []string) {
	ok, waiting := e.Gates.Ready()
	if since, away := e.Client.Away(); away {
		ok = ok && s.Offline
		waiting = append(waiting, "store: etcd not reachable since "+since.UTC().Format(time.RFC3339))
	}
	return ok, waiting
}

// replicaName returns the configured name, else a unique one.
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

// join waits for etcd and checks that this build supports its schema.
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
				e.Log.Debug("cannot read the size of etcd's database", "error", err)
			}
			return nil
		case !errs.Is(err, errs.Unavailable):
			return err
		}
		e.Log.Warn("etcd does not respond, retrying", "error", err)
		pause.Jittered(ctx, time.Second)
	}
}

// warnOfRoom logs conditions that will make etcd refuse writes.
func warnOfRoom(ctx context.Context, e Env) error {
	attempt, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	warnings, err := e.Client.RoomWarnings(attempt, e.Now())
	for _, w := range warnings {
		e.Log.Warn(w)
	}
	return errs.Wrap("program.warnOfRoom", err)
}

// awaitRoom is warnOfRoom for a program that does not wait for etcd: it retries until etcd
// responds, and then waits until ctx ends.
func awaitRoom(ctx context.Context, e Env) error {
	for warnOfRoom(ctx, e) != nil && pause.Jittered(ctx, joinTimeout) {
	}
	<-ctx.Done()
	return errs.Wrap("program.awaitRoom", ctx.Err())
}
