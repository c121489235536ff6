// Command standalone runs all of Orrery with an embedded etcd in one process. It is the
// quickest way to try Orrery, and enough for one machine.
//
//	go run ./standalone -demo
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/orreryhq/orrery/apigateway"
	"github.com/orreryhq/orrery/examples/arena"
	"github.com/orreryhq/orrery/libs/clock"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/scheduler"
	"github.com/orreryhq/orrery/standalone/stack"
)

// gcPercent is the garbage collector's target: how much garbage may accumulate, relative to
// the memory in use.
const gcPercent = 50

// acmeDirectory is Let's Encrypt.
const acmeDirectory = "https://acme-v02.api.letsencrypt.org/directory"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run runs the program. It returns 0 after a clean end, 1 after a failure, and 2 when the
// user must change something first.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == arenaCommand {
		return arena.Main(args[1:], stdin, stdout, stderr)
	}
	if len(args) > 0 && args[0] == nodeagent.GuardCommand {
		return nodeagent.Guard(stdin, stdout, stderr)
	}
	if len(args) > 0 && args[0] == nodeagent.PaneCommand {
		return nodeagent.Pane(args[1:], stderr)
	}
	o, f, err := parse(args, stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "standalone:", err)
		return 2
	case f.version:
		fmt.Fprintln(stdout, "orrery standalone", telemetry.Version())
		return 0
	}
	ctx, stop := lifecycle.WithSignals(context.Background(), o.Log, os.Exit)
	defer stop()
	if o.Now, err = clock.FromEnv(os.Environ()); err != nil {
		fmt.Fprintln(stderr, "standalone:", err)
		return 2
	}
	if os.Getenv("GOGC") == "" {
		// This process is idle most of the time beside the servers it runs, so memory
		// matters more than the collector's time.
		debug.SetGCPercent(gcPercent)
	}
	o.Guard, o.Pane = nodeagent.OwnGuard(), nodeagent.OwnPane()
	service := ownService(os.Getenv, os.Getpid())
	o.Keep = func(ctx context.Context) bool { return f.stop.keep(ctx, service, o.Log) }
	o.OnReady = func(r stack.Ready) { announce(ctx, stdout, r, f, f.stop.promise(service)) }
	if f.demo {
		o.Prepare = seedDemo
	}
	switch err := stack.Run(ctx, o); {
	case err == nil || errs.Is(err, errs.Canceled):
		return 0
	case errs.Is(err, errs.Invalid):
		fmt.Fprintln(stderr, "standalone:", strings.TrimSpace(errs.FieldOf(err)+" "+errs.MessageOf(err)))
		return 2
	default:
		fmt.Fprintln(stderr, "standalone:", err)
		return 1
	}
}

const intro = `standalone runs all of Orrery in one process with its own etcd.

usage: standalone [flags]        try it: standalone -demo

`

// flags are the settings of this program that are not the stack's.
type flags struct {
	demo, version, debug bool
	stop                 stopMode
}

// parse parses the flags. For a help flag, it prints the help and returns flag.ErrHelp.
func parse(args []string, stdout, stderr io.Writer) (stack.Options, flags, error) {
	var (
		o    stack.Options
		f    = flags{stop: stopAuto}
		node string
		fs   = flag.NewFlagSet("standalone", flag.ContinueOnError)
	)
	fs.SetOutput(io.Discard) // print one sentence for a mistake instead of the whole list of flags
	fs.StringVar(&o.DataDir, "data", stack.DefaultDataDir, "`directory` that holds everything: etcd, templates, instances, logs")
	fs.StringVar(&o.RunDir, "run-dir", "", "`directory` in memory, such as /dev/shm, for files that are needed only while the machine is up: starts are faster; empty: in the data directory")
	fs.StringVar(&o.Listen, "listen", stack.DefaultListen, "`address` of the API; port 0 picks a free one")
	transportFlags(fs, &o)
	fs.StringVar(&o.EtcdListen, "etcd-listen", "", "`address` where etcd serves clients that have a certificate; port 0 picks a free one; empty: only the unix socket in the data directory")
	fs.StringVar(&o.NodesListen, "nodes-listen", "", "`address` where further machines join with orrery create join-token and nodeagent join; the next port serves them templates; empty: none can join")
	fs.StringVar(&node, "node", stack.DefaultNode, "`name` of the one node")
	fs.IntVar(&o.MemoryMiB, "memory", 0, "memory the node offers, in `MiB`; 0: what the machine has")
	fs.IntVar(&o.CPU, "cpu", 0, "CPU the node offers, in `hundredths` of a core; 0: what the machine has")
	fs.IntVar(&o.FileVersionsMiB, "file-versions-mib", 0, "previous contents of files that users changed in static instances, kept for a day, in `MiB`; 0: 2 GiB")
	fs.StringVar(&o.BackupDir, "backup-dir", "", "`directory` of backups of static instances, such as one on another disk; empty: backups in the data directory of the node")
	fs.IntVar(&o.CacheMiB, "cache-mib", 0, "template content kept for the next start, in `MiB`; 0: a tenth of the disk, between 1 and 64 GiB")
	fs.StringVar(&o.SecretsDir, "secrets-dir", "", "`directory` below which file references of secrets are read; empty: none are followed")
	fs.StringVar(&o.SecretsEnvPrefix, "secrets-env-prefix", "ORRERY_SECRET_", "what the names `begin` with that env references of secrets may read of this program's environment; empty: none are followed")
	fs.StringVar(&o.ProvidersDir, "providers-dir", "", "`directory` of programs that give placeholders of instances; empty: none")
	fs.StringVar(&o.ConfigurationsDir, "configurations-dir", "", "`directory` that sources of kind configurations read; empty: none")
	fs.StringVar(&o.ProgramsDir, "programs-dir", "", "`directory` of programs that sources of kind program may name; empty: none")
	fs.BoolVar(&o.MetricsPublic, "metrics-public", false, "show the metrics under /api/metrics without a token")
	fs.StringVar(&o.EgressProxy, "egress-proxy", "", "`URL` of an HTTP proxy that sources and the catalog are fetched through; empty: no proxy, even if HTTP_PROXY is set")
	fs.IntVar(&o.Room.Reserved.MemoryMiB, "reserve-memory", 0, "memory kept for the machine itself, in `MiB`")
	fs.IntVar(&o.Room.Reserved.CPU, "reserve-cpu", 0, "CPU kept for the machine itself, in `hundredths` of a core")
	fs.IntVar(&o.Room.Reserved.DiskMiB, "reserve-disk", 0, "disk kept for the machine itself, in `MiB`")
	fs.Float64Var(&o.Room.CPUFactor, "cpu-factor", 1, "how `often` each hundredth of a core may be reserved: 2 is twice, 0.5 half")
	fs.IntVar(&o.Room.MaxInstances, "max-instances", 0, "most instances on the node; 0: no `bound`")
	fs.StringVar(&o.InstanceUIDs, "instance-uids", "", "`range` of user and group ids for instances whose group does not set confine.user, each of which gets its own; only if this program is root; empty: 1900000000-1900065535 if it is and -instance-user is empty")
	fs.StringVar(&o.InstanceUser, "instance-user", "", "one host `user` for all instances whose group does not set confine.user, instead of -instance-uids; only if this program is root; empty: users by -instance-uids, or else that of this program")
	fs.BoolVar(&o.RequireTenants, "require-tenants", false, "refuse to start if instances would share a user instead of getting one each by -instance-uids")
	addLists(fs, policyFlags(&o.Policy)...)
	fs.IntVar(&o.MaxCPUPercent, "max-cpu", scheduler.DefaultMaxCPUPercent, "`percent` of a node's processors in use above which it takes nothing new while another node is below; 100: no bound")
	fs.IntVar(&o.Lockout.Failures, "lockout-failures", 5, "wrong passwords within -lockout-window that lock a user name out; 0: none do")
	fs.DurationVar(&o.Lockout.Window, "lockout-window", 15*time.Minute, "how long a wrong password counts")
	fs.DurationVar(&o.Lockout.Duration, "lockout-duration", 15*time.Minute, "how long a user name is locked out")
	fs.StringVar(&o.AuditSink, "audit-sink", "", "`where` each entry of the audit is also written as a line of JSON: a file, syslog, or udp://host:port or tcp://host:port of a syslog server; empty: nowhere")
	fs.BoolVar(&o.Reset.Log, "password-reset-log", false, "let forgotten passwords be reset by a token that is written to the log")
	checkOIDC := oidcFlags(fs, &o.OIDC)
	fs.Var(&f.stop, "stop-instances", "stop the instances when this program ends: true, false (they run on and the next start adopts them), or auto (they run on only if this is a service of systemd and the host stays up)")
	fs.BoolVar(&f.demo, "demo", false, "declare a demo group of small game servers")
	fs.BoolVar(&f.debug, "debug", false, "log what is done and why")
	fs.BoolVar(&f.version, "version", false, "print the version and exit")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, intro)
		fs.SetOutput(stdout)
		fs.PrintDefaults()
		return o, f, err
	case err != nil:
		return o, f, fmt.Errorf("%w; see -help", err)
	case fs.NArg() > 0:
		return o, f, fmt.Errorf("unexpected argument %q; see -help", fs.Arg(0))
	}
	if problems := nodeagent.CheckOffer(o.MemoryMiB, o.CPU, o.Room); len(problems) > 0 {
		return o, f, fmt.Errorf("-%s %s", errs.FieldOf(problems[0]), errs.MessageOf(problems[0]))
	}
	if problems := o.Policy.Validate(); len(problems) > 0 {
		return o, f, fmt.Errorf("-%s %s", strings.ReplaceAll(errs.FieldOf(problems[0]), ".", "-"), errs.MessageOf(problems[0]))
	}
	if err := checkLockout(&o.Lockout); err != nil {
		return o, f, err
	}
	if err := checkOIDC(); err != nil {
		return o, f, err
	}
	if o.ProgramsDir != "" {
		dir, err := filepath.Abs(o.ProgramsDir)
		if err != nil {
			return o, f, fmt.Errorf("-programs-dir %s: %w", o.ProgramsDir, err)
		}
		o.ProgramsDir = dir
	}
	o.Node, o.Version = fleet.NodeID(node), telemetry.Version()
	level := "info"
	if f.debug {
		level = "debug"
	}
	log, err := telemetry.NewLogger(telemetry.LogOptions{Writer: stderr, Level: level, Format: "text", Service: "standalone"})
	o.Log = log
	return o, f, err
}

// listFlag is a flag whose values are separated by commas. It may be given more than once.
type listFlag struct {
	name, usage string
	into        *[]string
}

// addLists adds flags for lists.
func addLists(fs *flag.FlagSet, flags ...listFlag) {
	for _, l := range flags {
		fs.Func(l.name, l.usage, func(s string) error {
			*l.into = append(*l.into, strings.FieldsFunc(s, func(c rune) bool { return c == ',' })...)
			return nil
		})
	}
}

// transportFlags adds the flags that say how the API is served.
func transportFlags(fs *flag.FlagSet, o *stack.Options) {
	t := &o.Transport
	fs.StringVar(&o.APIURL, "api-url", "", "`URL` of the API for instances and programs on this machine; empty: that of -listen, with a name of the certificate")
	fs.StringVar(&t.TLS.Cert, "tls-cert", "", "`file` with the API's certificate in PEM, with the intermediate ones after it; a changed file is used for new connections")
	fs.StringVar(&t.TLS.Key, "tls-key", "", "`file` with the private key of -tls-cert in PEM")
	fs.DurationVar(&t.TLS.HSTS, "tls-hsts", 365*24*time.Hour, "how long browsers that saw the API over TLS use only TLS for this host, on all ports; 0 tells them nothing")
	fs.StringVar(&t.TLS.ACME.Directory, "tls-acme-directory", acmeDirectory, "`URL` of the ACME authority")
	fs.StringVar(&t.TLS.ACME.Email, "tls-acme-email", "", "`address` for messages of the ACME authority; empty: none")
	fs.StringVar(&t.TLS.ACME.CA, "tls-acme-ca", "", "`file` in PEM with the authorities that sign the certificate of -tls-acme-directory; empty: those of the machine")
	fs.StringVar(&t.TLS.ACME.Cache, "tls-acme-cache", "", "`directory` for the ACME account and the certificates; empty: in the data directory")
	fs.BoolVar(&t.InsecureHTTP, "insecure-http", false, "serve the API without TLS to other machines, where everybody on the way can read passwords and tokens")
	addLists(fs,
		listFlag{"tls-acme-hosts", "`names` to get certificates for from an ACME authority, whose terms you accept by this, separated by commas; it must reach port 443 of each name, forwarded to -listen", &t.TLS.ACME.Hosts},
		listFlag{"behind-proxy", "`addresses` or networks of the proxies that serve TLS in front of the API, separated by commas; only their X-Forwarded-For and X-Forwarded-Proto are believed", &t.BehindProxy},
	)
}

// policyFlags are the flags of what the node's instances may use.
func policyFlags(p *policy.Policy) []listFlag {
	return []listFlag{
		{"policy-users", "host `users` that confine.user of a group may name, separated by commas; *: all", &p.Users},
		{"policy-container-users", "`users` that container.user of a group may name, as user or user:group, separated by commas; *: all", &p.ContainerUsers},
		{"policy-volumes", "`directories` that containers may mount, each with all below it, and names of volumes of the container engine, separated by commas; *: all", &p.Volumes},
		{"policy-networks", "`networks` that containers may join beyond none and the container engine's default, such as host, separated by commas; *: all", &p.Networks},
		{"policy-images", "`images` that containers may use, such as ghcr.io/team/server:1 or ghcr.io/team/*, separated by commas; empty: all", &p.Images},
	}
}

// checkLockout rejects invalid values, and converts "none" to the gateway's value for none.
func checkLockout(l *apigateway.Lockout) error {
	switch {
	case l.Failures < 0 || l.Failures > apigateway.MaxLockoutFailures:
		return fmt.Errorf("-lockout-failures must be between 0 and %d, is %d", apigateway.MaxLockoutFailures, l.Failures)
	case l.Window < time.Second:
		return fmt.Errorf("-lockout-window must be at least 1s, is %v", l.Window)
	case l.Duration < time.Second:
		return fmt.Errorf("-lockout-duration must be at least 1s, is %v", l.Duration)
	case l.Failures == 0:
		l.Failures = -1
	}
	return nil
}
