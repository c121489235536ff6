// Command apigateway runs the gateway as a process of its own: the HTTP API of a
// fleet, for clients of both dialects.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/apigateway"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/program"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// gcPercent is the gateway's default for GOGC. Almost all of its memory is the records of the fleet, and with
// Go's 100 the process takes more than twice their size.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// settings are what an operator may set.
type settings struct {
	program.Settings
	apigateway.Transport
	Seal   program.Seal `config:"seal"`
	Listen string       `config:"listen" default:":8080" usage:"address of the API; port 0 picks a free one"`
	API    struct {
		URL string `config:"url" usage:"URL others reach the API by; empty: derived from listen"`
	} `config:"api"`
	Peers struct {
		Listen string `config:"listen" default:"127.0.0.1:0" usage:"address for other gateways, and for services that renew their certificates; used only with trust.file; port 0 picks a free one"`
		URL    string `config:"url" usage:"URL they reach that address by; empty: derived from peers.listen, with the host's name if it listens on all addresses"`
	} `config:"peers"`
	Nodes    apigateway.Nodes    `config:"nodes"`
	Services apigateway.Services `config:"services"`
	Admin    struct {
		PasswordFile    string `config:"password-file" default:"./admin-password" usage:"file the generated password of the first user is written to at the first start"`
		InitialPassword string `config:"initial-password" secret:"true" usage:"password of the first user at the first start, instead of a generated one"`
	} `config:"admin"`
	CORS struct {
		Origins []string `config:"origins" usage:"origins whose pages may call the API, like https://panel.example.org; empty: only pages of the gateway's own origin; * allows any"`
	} `config:"cors"`
	Network struct {
		AllowedSubnets []string `config:"allowed-subnets" usage:"networks the API may be used from, like 10.0.0.0/8; empty: from anywhere"`
		TrustedProxies []string `config:"trusted-proxies" usage:"renamed to behind-proxy"`
	} `config:"network"`
	Limits struct {
		Anonymous int `config:"anonymous" default:"100" usage:"requests without a valid token per minute and address; 0 sets no limit"`
		Logins    int `config:"logins" default:"10" usage:"attempts to log in per minute and address; 0 sets no limit"`
		Names     int `config:"names" default:"0" usage:"attempts to log in per minute under a user name; 0 sets no limit"`
		Users     int `config:"users" default:"0" usage:"requests per minute of a user; 0 sets no limit"`
		Tickets   int `config:"tickets" default:"120" usage:"tickets for streams that a user gets per minute; 0 sets no limit"`
		Streams   int `config:"streams" default:"100" usage:"streams of a kind that a user has open at this gateway: of events, of consoles, of consoles for commands, of logs; never more than half of all"`
	} `config:"limits"`
	Events struct {
		Streams int `config:"streams" default:"2000" usage:"streams of events that are open at a time; each takes up to 64 KiB"`
	} `config:"events"`
	Lockout struct {
		Failures int           `config:"failures" default:"5" usage:"wrong passwords within the window that lock a user name out; 0 disables lockouts; set the same value for all gateways"`
		Window   time.Duration `config:"window" default:"15m" usage:"how long a wrong password counts"`
		Duration time.Duration `config:"duration" default:"15m" usage:"how long a user name is locked out"`
	} `config:"lockout"`
	PasswordReset struct {
		By  string `config:"by" usage:"how the token that resets a forgotten password reaches its user: smtp, or log for the log of the gateway; empty: passwords cannot be reset"`
		URL string `config:"url" usage:"page the mail leads to, with ?token=; empty: the mail has the token alone"`
	} `config:"password-reset"`
	SMTP struct {
		Address  string `config:"address" usage:"host and port of the mail server; it must offer TLS unless it is this host"`
		From     string `config:"from" usage:"address mails come from"`
		User     string `config:"user" usage:"user to log in as; empty: no login"`
		Password string `config:"password" secret:"true" usage:"password of that user"`
	} `config:"smtp"`
	OIDC  oidcSettings `config:"oidc"`
	Audit struct {
		Sink string `config:"sink" usage:"where each entry of the audit is also written as a line of JSON: a file, syslog, or udp://host:port or tcp://host:port of a syslog server; empty: nowhere"`
	} `config:"audit"`
	Metrics struct {
		Public bool `config:"public" usage:"show the metrics under /api/metrics without a token"`
	} `config:"metrics"`
	Share struct {
		Enabled bool `config:"enabled" default:"true" usage:"let users share logs, crashes and consoles by links; false also closes the links there are"`
	} `config:"share"`
	LogKeep     int    `config:"log.keep" default:"2000" usage:"records of this process' log that are kept in memory and readable over the API"`
	ClusterName string `config:"cluster.name" default:"orrery" usage:"name of the cluster, shown to clients of the older API"`
}

// Validate names the settings that cannot be used.
func (s *settings) Validate() []error {
	problems := slices.Concat(s.Settings.Validate(), s.Transport.Validate(), s.RequireSecret(), telemetry.CheckKept(s.LogKeep))
	check := func(ok bool, field, message string) {
		if !ok {
			problems = append(problems, errs.Field(field, "%s", message))
		}
	}
	check(len(s.Network.TrustedProxies) == 0, "network.trusted-proxies", "has been renamed: set behind-proxy to the same value")
	check(s.Listen != "", "listen", "must be an address, like :8080")
	check(s.Limits.Anonymous >= 0, "limits.anonymous", "must not be negative")
	check(s.Limits.Logins >= 0, "limits.logins", "must not be negative")
	check(s.Limits.Names >= 0, "limits.names", "must not be negative")
	check(s.Limits.Users >= 0, "limits.users", "must not be negative")
	check(s.Limits.Tickets >= 0, "limits.tickets", "must not be negative")
	check(s.Limits.Streams >= 1, "limits.streams", "must be at least 1")
	check(s.Events.Streams >= 1, "events.streams", "must be at least 1")
	check(s.Lockout.Failures >= 0 && s.Lockout.Failures <= apigateway.MaxLockoutFailures, "lockout.failures", fmt.Sprintf("must be between 0 and %d", apigateway.MaxLockoutFailures))
	check(s.Lockout.Window >= time.Second, "lockout.window", "must be at least 1s")
	check(s.Lockout.Duration >= time.Second, "lockout.duration", "must be at least 1s")
	problems = slices.Concat(problems, s.Nodes.Check(s.Trust.File != ""), s.Services.Check(s.Trust.File != ""))
	if err := apigateway.CheckAuditSink(s.Audit.Sink); err != nil {
		problems = append(problems, err)
	}
	mails := s.PasswordReset.By == bySMTP
	check(mails || s.PasswordReset.By == "" || s.PasswordReset.By == byLog, "password-reset.by", "must be smtp, log or empty")
	check(!mails || strings.Contains(s.SMTP.Address, ":"), "smtp.address", "must be a host and port, like mail.example.org:587, for mails that reset passwords")
	check(!mails || strings.Contains(s.SMTP.From, "@"), "smtp.from", "must be an address, for mails that reset passwords")
	check(s.Admin.PasswordFile != "" || s.Admin.InitialPassword != "", "admin.password-file", "must be given when there is no admin.initial-password")
	return problems
}

func run(args, env []string, stdout, stderr io.Writer) int {
	var s settings
	return program.Main(program.Spec{
		Name: "apigateway", About: "Serves the HTTP API of an Orrery fleet.",
		Into: &s, Common: &s.Settings, Follows: view.AllKinds(), Authority: &s.Services.Authority, KeepLog: &s.LogKeep,
		Build: func(e program.Env) ([]lifecycle.Component, error) { return build(&s, e) },
	}, args, env, stdout, stderr)
}

// build listens first, so that a taken address fails the start before anything else does.
func build(s *settings, e program.Env) ([]lifecycle.Component, error) {
	listener, err := apigateway.Listen(context.Background(), s.Listen)
	if err != nil {
		return nil, err
	}
	if e.Peers.Certified() && program.OnlyThisHost(s.Peers.Listen, s.Peers.URL, s.Etcd.Endpoints) {
		e.Log.Warn("gateways and services on other hosts cannot reach this one at its loopback address: set --peers-listen or --peers-url to an address of this host",
			"listen", s.Peers.Listen, "url", s.Peers.URL)
	}
	service, err := apigateway.New(apigateway.Config{
		Store: e.Client, View: e.View, Log: e.Log, Records: e.Records, Metrics: e.Registry, MetricsPublic: s.Metrics.Public, Listener: listener, APIURL: s.API.URL,
		ClusterSecret: s.Cluster.Secret, SealKey: s.Seal.Key, Peers: e.Peers, PeerListen: s.Peers.Listen, PeerURL: s.Peers.URL, Nodes: s.Nodes, Services: s.Services, AdminPassword: s.Admin.InitialPassword, AdminPasswordFile: s.Admin.PasswordFile,
		Origins: s.CORS.Origins, AllowedSubnets: s.Network.AllowedSubnets, Transport: s.Transport, Limits: limits(s), MaxStreams: s.Events.Streams, UserStreams: s.Limits.Streams,
		Lockout: lockout(s), Reset: reset(s), OIDC: s.OIDC.provider(), NoShares: !s.Share.Enabled, AuditSink: s.Audit.Sink, Replica: e.Replica, ClusterName: s.ClusterName,
		Version: telemetry.Version(), Now: e.Now, SessionTTL: s.Session.TTL,
	})
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return []lifecycle.Component{
		{Name: "apigateway", Run: service.Run},
		{Name: "serving", Start: func(ctx context.Context) error {
			select {
			case <-service.Ready():
				return nil
			case <-ctx.Done():
				return errs.Wrap("apigateway.serving", ctx.Err())
			}
		}},
	}, nil
}

// limits are as set, where 0 sets none.
func limits(s *settings) apigateway.Limits {
	return apigateway.Limits{Anonymous: none(s.Limits.Anonymous), Logins: none(s.Limits.Logins), Names: s.Limits.Names, Users: s.Limits.Users, Tickets: none(s.Limits.Tickets)}
}

func lockout(s *settings) apigateway.Lockout {
	return apigateway.Lockout{Failures: none(s.Lockout.Failures), Window: s.Lockout.Window, Duration: s.Lockout.Duration}
}

// The values of password-reset.by.
const (
	bySMTP = "smtp"
	byLog  = "log"
)

func reset(s *settings) apigateway.PasswordReset {
	out := apigateway.PasswordReset{Log: s.PasswordReset.By == byLog, URL: s.PasswordReset.URL}
	if s.PasswordReset.By == bySMTP {
		out.Mail = &apigateway.MailServer{Address: s.SMTP.Address, From: s.SMTP.From, User: s.SMTP.User, Password: s.SMTP.Password}
	}
	return out
}

// none is what turns off for the gateway what a setting of 0 turns off.
func none(n int) int {
	if n == 0 {
		return -1
	}
	return n
}
