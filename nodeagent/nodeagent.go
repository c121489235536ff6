// Package nodeagent is the service that runs instances on one host. It joins the
// fleet as a node, builds the directory of each instance placed there, starts and
// watches the instance, reports its status, and stops it when ordered to.
//
// The agent does not decide what runs or ends: placements and orders in the store do.
// Instances outlive the agent; the next agent on the same data directory adopts them.
//
//	DATA/lock, holder    the agent's lock on the directory, and its last holder
//	DATA/uuid            the node's identity
//	DATA/past            which history of the store was seen last; see journal.History
//	DATA/deadline        until when exclusive instances may run; read by their guards
//	DATA/relay           the address at which instances use the API; see package relay
//	DATA/agent.sock      the local API for operators on the host
//	DATA/journal/        one file per instance with the work that was begun
//	DATA/secrets/        sealed secrets that instances refer to, for when etcd is unavailable
//	DATA/blobs/          template content by hash; see package blobcache
//	DATA/running/ID/     directories of dynamic instances
//	DATA/containers/ID/  directories of instances in containers; closed to other users
//	DATA/static/GROUP/NAME/   directories of static instances, which are kept
//	DATA/run/ID/         the runtime's own files
//	DATA/tmux/, screen/  sockets of the terminal sessions that run instances
//	DATA/docker/         sockets that containers are started through
//	DATA/logs/ID.log     output; ID.times holds its timestamps. Kept as long as the instance's record
package nodeagent

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
	"github.com/orreryhq/orrery/nodeagent/internal/content/secrets"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/confine"
)

// Templates is the source of template content; see templatesvc's client. The agent
// verifies what it receives. Reads fail with Unavailable when the source stops sending.
type Templates interface {
	// Manifest opens a template version's manifest by its digest, the SHA-256 of its
	// bytes. The caller closes it. NotFound if no source has it.
	Manifest(ctx context.Context, digest string) (io.ReadCloser, error)
	// Blob opens content by its SHA-256. The caller closes it. NotFound if no source has it.
	Blob(ctx context.Context, sha256 string) (io.ReadCloser, error)
	// Row opens several blobs as one reader: the first and, as long as the source has them at
	// hand, the following ones without gaps. NotFound also if the source only sends single blobs.
	Row(ctx context.Context, sha256s []string) (io.ReadCloser, error)
	// Suspect reports that received content did not match its hash, so that the source checks its copy.
	Suspect(ctx context.Context, sha256 string) error

	// Artifact opens an artifact of the catalog by its SHA-256. The caller closes it.
	// Conflict, naming both hashes, if the content at the catalog's URL has another hash.
	Artifact(ctx context.Context, sha256 string) (io.ReadCloser, error)
}

var _ blobcache.Source = Templates(nil)

// DefaultOrphanGrace is the default of Config.OrphanGrace in programs that run an agent.
const DefaultOrphanGrace = 10 * time.Minute

// secretsDir is the directory in DataDir with the sealed secrets of instances.
const secretsDir = "secrets"

// DefaultListen is the default address of the agent's API.
const DefaultListen = "127.0.0.1:0"

// Config configures an Agent. Store, Node, DataDir, Templates and Log are required, and one of
// ClusterSecret and AskSecrets.
type Config struct {
	Store *store.Client
	// Node is the node's id. An id belongs to one data directory.
	Node    fleet.NodeID
	DataDir string
	// RunDir is a directory in memory for files that are needed only while the host is up.
	// The agents of a host may share it. Empty means DataDir.
	RunDir string
	// Address is the address at which players reach the host. Empty means 127.0.0.1.
	Address string
	// Listen is the address of the agent's API. Empty means DefaultListen.
	Listen string
	// AdvertiseURL is the URL at which the gateway reaches the agent's API. Empty means the
	// address that it listens on.
	AdvertiseURL string
	Labels       map[string]string
	// Variables are the node's placeholder values.
	Variables map[string]string
	// SecretsDir is the directory for file references of secrets. SecretsEnvPrefix is the
	// prefix of the environment variables that secrets may refer to. Empty disables the kind.
	SecretsDir, SecretsEnvPrefix string
	// ProvidersDir is the directory of the programs that provide placeholder values; see
	// package provider. Empty means none.
	ProvidersDir string
	// ProvidersTimeout bounds the run of each provider. 0 means 5 s.
	ProvidersTimeout time.Duration
	// MemoryMiB and CPU (hundredths of a core) are the node's capacity. 0 means that of the host.
	MemoryMiB, CPU int
	// CacheMiB bounds the cached template content that no instance uses.
	// 0 means a tenth of the disk, between 1 and 64 GiB.
	CacheMiB int
	// FileVersionsMiB bounds the kept previous contents of files that users changed. 0 means 2 GiB.
	FileVersionsMiB int
	// BackupDir is the directory of backups of static instances; empty means one in DataDir.
	BackupDir string
	// Room limits how much of the capacity instances may reserve. An operator may override it.
	Room fleet.NodeRoom
	// APIURL is the gateway's address for instances. Empty leaves it out of their environment.
	APIURL string
	// Relay sends the calls of instances to the API of Gateways; it must know them by their certificates. Nil
	// means that instances use APIURL. Containers always do.
	Relay    http.RoundTripper
	Gateways []string
	// ClusterSecret opens the sealed secrets of instances, in a cluster without a keyring. Without it, AskSecrets
	// is required.
	ClusterSecret string
	// SealKey has the key-encryption keys of a cluster with a keyring; see seal.CheckKeys. An agent with AskSecrets
	// needs none.
	SealKey string
	// AskSecrets asks a gateway for the values of an instance's secrets, by variable. refs are references
	// to stored secrets, and sealed values.
	AskSecrets func(ctx context.Context, id fleet.InstanceID, refs map[string]string) (map[string]string, error)
	// Peers authenticates the calls between services. Nil means by the cluster secret.
	Peers     *trust.Peers
	Templates Templates
	// SessionTTL is how long the node's session survives without keep-alives. 0 means store.DefaultTTL.
	SessionTTL time.Duration
	// StopInstancesOnExit stops all instances when Run's context ends. Otherwise
	// they run on and the next agent adopts them.
	StopInstancesOnExit bool
	// OrphanGrace is how long an instance without a record may keep running. 0 means forever.
	OrphanGrace time.Duration
	// Now reads the wall clock, with a monotonic reading. Nil means time.Now.
	Now func() time.Time
	// BootID identifies the current boot of the host. A changed id means that the host was
	// restarted. Empty means the kernel's own id. Tests set one to simulate a restart.
	BootID string
	// Guard is the command that runs a guard beside an exclusive instance: a program
	// that calls Guard. If it is empty, exclusive instances fail to start. See OwnGuard.
	Guard []string
	// Pane is the command that waits inside a terminal session: a program that calls
	// Pane. If it is empty, the node offers no runtime with a terminal. See OwnPane.
	Pane []string
	// InstanceUIDs is the range of user and group ids for instances whose group names no user; see
	// the function InstanceUIDs. Each gets one of its own. Containers use the user of their image. Empty
	// means InstanceUser.
	InstanceUIDs string
	// InstanceUser is the one user of instances whose group names none. Empty means the agent's own user.
	InstanceUser string
	// RequireTenants makes New fail if InstanceUIDs is empty.
	RequireTenants bool
	// Policy is what instances may use beyond a plain process or container. Its users need not
	// include InstanceUser, or the agent's own user if groups that name none run as that.
	Policy policy.Policy
	// StartParallel is how many instances start at the same time. 0 means all of them, and for some
	// minutes after a reboot of the host one for each processor.
	StartParallel int
	// Version is shown in the node's record.
	Version string
	Log     *slog.Logger
	// Records holds the newest records of this process's log. Nil means those logged to Log after New.
	Records *telemetry.Ring
	// Metrics registers the service's metrics. Nil disables them.
	Metrics prometheus.Registerer
}

// Agent is the agent of one node.
type Agent struct {
	cfg   Config
	ring  *seal.Ring
	ready chan struct{}
	keep  atomic.Bool
	// ending is closed by end when an operator ends the agent over its API.
	ending chan struct{}
	end    func()
}

// New checks the configuration and returns an Agent. It touches nothing on the host
// before Run. It returns Invalid errors that name the setting.
func New(cfg Config) (*Agent, error) {
	switch {
	case cfg.Store == nil, cfg.Log == nil, cfg.Templates == nil:
		return nil, errs.New(errs.Invalid, "nodeagent: Store, Templates and Log are required")
	case cfg.DataDir == "":
		return nil, errs.Field("data", "a directory for the agent's data is required")
	case cfg.ClusterSecret == "" && cfg.AskSecrets == nil:
		return nil, errs.Field("cluster.secret", "is required: it opens the secrets of instances")
	case cfg.CacheMiB < 0:
		return nil, errs.Field("cache-mib", "must not be negative")
	case cfg.FileVersionsMiB < 0:
		return nil, errs.Field("file-versions-mib", "must not be negative")
	case cfg.StartParallel < 0:
		return nil, errs.Field("start-parallel", "must not be negative")
	case cfg.OrphanGrace < 0:
		return nil, errs.Field("orphan-grace", "must not be negative")
	}
	if cfg.ProvidersDir != "" {
		dir, err := filepath.Abs(cfg.ProvidersDir)
		if err != nil {
			return nil, errs.WrapAs(errs.Invalid, "nodeagent.New", err)
		}
		cfg.ProvidersDir = dir
	}
	if err := checkUser(cfg.InstanceUser); err != nil {
		return nil, err
	}
	if err := checkTenants(&cfg); err != nil {
		return nil, err
	}
	if problems := cfg.Policy.Validate(); len(problems) > 0 {
		return nil, problems[0]
	}
	if problems := CheckOffer(cfg.MemoryMiB, cfg.CPU, cfg.Room); len(problems) > 0 {
		return nil, problems[0]
	}
	if err := cfg.Node.Validate(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Records == nil {
		cfg.Records = telemetry.NewRing("nodeagent/"+string(cfg.Node), 0)
		cfg.Log = slog.New(cfg.Records.Handler(cfg.Log.Handler()))
	}
	if cfg.Peers == nil {
		cfg.Peers = trust.BySecret(cfg.ClusterSecret)
	}
	if err := cfg.Peers.CheckOwn(pki.Identity{Service: pki.Agent, Name: string(cfg.Node)}); err != nil {
		return nil, err
	}
	if err := cfg.Peers.CheckURL("advertise-url", cfg.AdvertiseURL); err != nil {
		return nil, err
	}
	cfg.Address = cmp.Or(cfg.Address, "127.0.0.1")
	cfg.Listen = cmp.Or(cfg.Listen, DefaultListen)
	cfg.BootID = cmp.Or(cfg.BootID, runtime.BootID())
	ring, err := secrets.NewRing(cfg.ClusterSecret, cfg.SealKey, filepath.Join(cfg.DataDir, secretsDir), func(ctx context.Context) (account.Keyring, error) {
		return store.Get(ctx, cfg.Store, keys.Keyring())
	})
	if err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, ring: ring, ready: make(chan struct{}), ending: make(chan struct{})}
	a.end = sync.OnceFunc(func() { close(a.ending) })
	return a, nil
}

// checkUser returns an Invalid error if the agent cannot run instances as the user.
func checkUser(name string) error {
	if name == "" {
		return nil
	}
	account, err := confine.Lookup(name)
	switch {
	case err != nil:
		return errs.Field("instance-user", "%q is no user of this host: add it, or name another", name)
	case os.Geteuid() != 0 && account.UID != os.Geteuid():
		return errs.Field("instance-user", "%q cannot be used, because the agent does not run as root: start it as root, or clear instance-user", name)
	}
	return nil
}

// Ready is closed when the node has joined the fleet and offers its runtimes.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Stop returns a function to call before Run's context is canceled. If the shutdown was
// not requested (asked returns false), it keeps the instances running even if
// StopInstancesOnExit is set: a failure elsewhere in the process must not affect players.
func (a *Agent) Stop(asked func() bool) func(context.Context) error {
	return func(context.Context) error {
		if !asked() {
			a.keep.Store(true)
		}
		return nil
	}
}
