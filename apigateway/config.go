package apigateway

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/background/auditsink"
	"github.com/orreryhq/orrery/apigateway/internal/background/mail"
	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/clusterops"
	"github.com/orreryhq/orrery/apigateway/internal/server/settings"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/trust"
)

// Default limits for an API that is reachable from the internet; see Limits.
const (
	defaultAnonymous = 100
	defaultLogins    = 10
	defaultTickets   = 120
)

// minSecret is the minimum length of the cluster secret.
const minSecret = 16

// Limits of requests per minute, over all gateways. 0 means the default, a negative value no limit.
type Limits struct {
	// Anonymous limits requests without a valid token from an address. Default: 100.
	Anonymous int
	// Logins limits login attempts from an address. Default: 10.
	Logins int
	// Names limits login attempts for a user name. Default: no limit.
	Names int
	// Users limits requests of a user. Default: no limit.
	Users int
	// Tickets limits the stream tickets of a user. Default: 120.
	Tickets int
}

// CheckAuditSink validates Config.AuditSink.
func CheckAuditSink(target string) error { return auditsink.Check(target) }

// MaxLockoutFailures is the maximum of Lockout.Failures: the time of each failure is stored.
const MaxLockoutFailures = 100

// Lockout configures when a user name is locked. All gateways should have the same values.
type Lockout struct {
	// Failures is the number of wrong passwords within Window that locks a name for Duration. Default: 5.
	// A negative value disables the lockout.
	Failures int
	// Window and Duration are 15 minutes by default.
	Window, Duration time.Duration
}

// PasswordReset configures how users get password reset tokens. The zero value disables resets.
type PasswordReset struct {
	// Log writes the token to the log.
	Log bool
	// Mail sends the token to the user's address.
	Mail *MailServer
	// URL is the page that the mail links to, with ?token=. If empty, the mail has only the token.
	URL string
}

// MailServer is a mail server.
type MailServer = mail.Server

// Config configures a Gateway. Store, View, Log, Replica and ClusterSecret are required, and one of
// Listen and Listener.
type Config struct {
	Store *store.Client
	// View may be shared with other services in the process. New subscribes to it, so call its Run
	// after New.
	View *view.View
	Log  *slog.Logger
	// Records has the last records of this process's log. Nil records those of Log from New on.
	Records *telemetry.Ring
	// Metrics takes the service's metrics. Nil drops them.
	Metrics prometheus.Registerer
	// MetricsPublic serves /api/metrics without authentication.
	MetricsPublic bool
	// Listen is the address to serve on; port 0 picks a free one.
	Listen string
	// Listener is used instead of Listen when not nil; Run closes it.
	Listener net.Listener
	// APIURL is the URL at which others reach the gateway. Empty means the listener's own address.
	APIURL string
	// Meta identifies the cluster; the zero value is read from the store.
	Meta cluster.Meta
	// ClusterSecret seals secrets in a cluster without a keyring, and identifies gateways to each other.
	ClusterSecret string
	// SealKey has the key-encryption keys; see seal.CheckKeys. In a new cluster, they wrap the first version of
	// the sealing key. Empty is for clusters that seal with the cluster secret.
	SealKey string
	// Peers authenticates the calls between services. Nil means by the cluster secret.
	Peers *trust.Peers
	// PeerListen is the address for other gateways; required with certificates, not used otherwise.
	// PeerURL is the URL at which they reach it; empty means the listener's own address.
	PeerListen, PeerURL string
	Nodes               Nodes
	Services            Services
	// NodesStore is the client through which nodes use etcd. It must be one that store.Dial has returned. Nil
	// means Store.
	NodesStore *store.Client
	// AdminPassword is the first user's password. If empty, one is generated and written to
	// AdminPasswordFile.
	AdminPassword, AdminPasswordFile string
	// Origins are the origins whose pages may call the API, in addition to the gateway's own; "*" allows
	// any. Credentials are never allowed, because tokens are not cookies.
	Origins []string
	// AllowedSubnets are the CIDR networks that may use the API. Empty allows any.
	AllowedSubnets []string
	Transport
	Limits Limits
	// MaxStreams limits the concurrent event streams. 0 means 2,000.
	MaxStreams int
	// UserStreams limits one user's concurrent streams of each kind (events, consoles, command
	// consoles, logs), to at most half of all. 0 means 100.
	UserStreams int
	Lockout     Lockout
	Reset       PasswordReset
	OIDC        OIDC
	// NoShares turns sharing off, including existing shares.
	NoShares bool
	// AuditSink also writes each audit entry of this gateway as a line of JSON to a file, syslog,
	// udp://host:port or tcp://host:port. Empty means none.
	AuditSink string
	// Replica is this process's name among the gateways.
	Replica string
	// NodeID is this gateway's node name in the older API. Empty means Replica.
	NodeID string
	// ClusterName is the cluster's name in the older API. Empty means "orrery".
	ClusterName string
	// Version is shown to clients and in the replica's session record.
	Version string
	// SessionTTL is how long the session outlives its last keep-alive. 0 means store.DefaultTTL.
	SessionTTL time.Duration
	// Takeover ends a previous session of the same name. Set it only if that process has certainly ended.
	Takeover bool
	// lookup resolves host names. Nil means the host's resolver.
	lookup clusterops.Lookup
	// passwordCost is the cost of hashing a password. pause delays the check after wrong passwords. The
	// zero values are for production.
	passwordCost auth.Cost
	pause        func(context.Context, time.Duration) bool
	// pinTime limits how long a response waits for the first download of a catalog version. 0 means 10 s.
	pinTime time.Duration
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// settings returns the gateway's own settings, which the cluster settings can override.
func (c Config) settings() (settings.Settings, error) {
	limit := func(set, otherwise int) int { return max(0, cmp.Or(set, otherwise)) }
	out := settings.Settings{
		Origins: c.Origins, Anonymous: limit(c.Limits.Anonymous, defaultAnonymous), Logins: limit(c.Limits.Logins, defaultLogins),
		Names: max(0, c.Limits.Names), Users: max(0, c.Limits.Users), Tickets: limit(c.Limits.Tickets, defaultTickets),
		Session: auth.SessionTTL, Reset: accountops.ResetTTL, Lockout: c.Lockout.effective(),
	}
	var err error
	if out.Subnets, err = settings.Prefixes("network.allowed-subnets", c.AllowedSubnets); err != nil {
		return out, err
	}
	out.Proxies, err = c.proxies()
	return out, err
}

// effective returns the lockout with its defaults.
func (l Lockout) effective() settings.Lockout {
	const failures, quarter = 5, 15 * time.Minute
	out := settings.Lockout{Off: l.Failures < 0, Failures: l.Failures, Window: cmp.Or(l.Window, quarter), Duration: cmp.Or(l.Duration, quarter)}
	if l.Failures <= 0 {
		out.Failures = failures
	}
	return out
}
