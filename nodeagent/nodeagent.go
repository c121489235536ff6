// Package nodeagent is the service that runs instances on one host: it joins the
// fleet as a node, builds each placed instance's directory, starts it, watches it,
// reports what it sees, and stops it when ordered to.
//
// It decides neither what runs here nor what shall end: placements and orders in
// the store do. What it has started outlives it; a later agent on the same data
// directory goes on with it.
//
//	DATA/lock, holder    the agent's hold on the directory, and who had it last
//	DATA/uuid            the node's identity
//	DATA/past            which past of the store was seen last; see journal.Past
//	DATA/deadline        until when exclusive instances may run; read by their guards
//	DATA/agent.sock      the break-glass interface, for the host's own operators
//	DATA/journal/        what was begun, one file per instance
//	DATA/secrets/        sealed secrets that instances refer to, for when etcd is away
//	DATA/blobs/          template content by hash; see the package blobs
//	DATA/running/ID/     directories of dynamic instances
//	DATA/containers/ID/  those of the ones in containers; nobody else may pass
//	DATA/static/GROUP/NAME/   those of static ones, kept
//	DATA/run/ID/         the runtime's own files
//	DATA/tmux/, screen/  sockets of the sessions that run instances
//	DATA/docker/         sockets that containers are started through
//	DATA/logs/ID.log     output, and ID.times, when it came; kept as long as the instance's record
package nodeagent

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent/internal/blobs"
	"github.com/orreryhq/orrery/nodeagent/internal/confine"
	"github.com/orreryhq/orrery/nodeagent/internal/usage"
)

// Templates is where template content comes from; see templatesvc's client. What it
// sends is verified here. Reads fail with Unavailable where nothing comes any more.
type Templates interface {
	// Manifest opens a template version's manifest by its digest, the SHA-256 of these
	// bytes; the caller closes it. NotFound when nobody has it.
	Manifest(ctx context.Context, digest string) (io.ReadCloser, error)
	// Blob opens content by its SHA-256; the caller closes it. NotFound when nobody has it.
	Blob(ctx context.Context, sha256 string) (io.ReadCloser, error)
	// Row opens several blobs as one reader: the first and, as far as they are at hand, those
	// after it, without a gap. NotFound also when it can only send one at a time.
	Row(ctx context.Context, sha256s []string) (io.ReadCloser, error)
	// Suspect says that what came under a hash did not have it, so that whoever keeps it looks.
	Suspect(ctx context.Context, sha256 string) error

	// Artifact opens an artifact of the catalog by its SHA-256; the caller closes it.
	// Conflict, naming both hashes, when the catalog's URL has something else.
	Artifact(ctx context.Context, sha256 string) (io.ReadCloser, error)
}

var _ blobs.Source = Templates(nil)

// DefaultOrphanGrace is how long programs leave a process without a record alone unless told otherwise.
const DefaultOrphanGrace = 10 * time.Minute

// DefaultListen is where the agent's API listens unless told otherwise.
const DefaultListen = "127.0.0.1:0"

// Config is what an agent needs. Store, Node, DataDir, ClusterSecret, Templates
// and Log are required.
type Config struct {
	Store *store.Client
	// Node is the node's id; it belongs to one data directory.
	Node    fleet.NodeID
	DataDir string
	// RunDir is a directory in memory, below which the agent keeps what runs need only
	// while the host is up; the agents of a host may share it. Empty: in DataDir.
	RunDir string
	// Address is where players reach the host. Empty means 127.0.0.1.
	Address string
	// Listen is the address of the agent's API. Empty means DefaultListen.
	Listen string
	// AdvertiseURL is where the gateway reaches the agent's API. Empty means the
	// address it listens on.
	AdvertiseURL string
	Labels       map[string]string
	// Variables are the node's placeholder values.
	Variables map[string]string
	// SecretsDir is the directory that file references of secrets are read below, and
	// SecretsEnvPrefix what the names of those begin with that are read of the agent's own
	// environment. Empty: this node follows none of that kind.
	SecretsDir, SecretsEnvPrefix string
	// ProvidersDir is the directory of the programs that give placeholders; see the package
	// provide. Empty: there are none.
	ProvidersDir string
	// ProvidersTimeout is how long each of them may take. 0 means 5 s.
	ProvidersTimeout time.Duration
	// MemoryMiB and CPU (hundredths of a core) are what the node offers. 0 means what the host has.
	MemoryMiB, CPU int
	// CacheMiB is how much template content the node keeps that nothing uses at the moment.
	// 0 means a tenth of the disk, between 1 and 64 GiB.
	CacheMiB int
	// Room says how much of that instances may reserve; until an operator says otherwise.
	Room fleet.NodeRoom
	// APIURL is the gateway's address as seen by instances. Empty leaves it out of their environment.
	APIURL string
	// ClusterSecret is the secret of calls between services.
	ClusterSecret string
	Templates     Templates
	// SessionTTL is how long the session outlives the agent. 0 means store.DefaultTTL.
	SessionTTL time.Duration
	// StopInstancesOnExit stops all instances when Run's context ends. Otherwise
	// they run on and the next agent adopts them.
	StopInstancesOnExit bool
	// OrphanGrace is how long a process runs on whose instance has no record. 0 means for ever.
	OrphanGrace time.Duration
	// Now reads the wall clock, with a monotonic reading. Nil means time.Now.
	Now func() time.Time
	// BootID identifies the running kernel: another one than last time means that the
	// host was restarted. Empty means the kernel's own; tests give one to stand for a restart.
	BootID string
	// Guard is the command that runs a guard beside an exclusive instance: a program
	// that calls Guard. Empty: such instances fail here. See OwnGuard.
	Guard []string
	// Pane is the command that waits inside a terminal's session: a program that calls
	// Pane. Empty: the node offers no runtime with a terminal. See OwnPane.
	Pane []string
	// Confine is the command that confines what it becomes: a program that calls Confine.
	// Empty: instances that are to be confined fail here. See OwnConfine.
	Confine []string
	// InstanceUser is the user that instances run as unless their group names another.
	// Containers keep the user of their image. Empty: the agent's own user.
	InstanceUser string
	// Version is shown in the node's record.
	Version string
	Log     *slog.Logger
	// Records are the last records of this process' log. Nil: those of Log from New on are kept.
	Records *telemetry.Ring
	// Metrics takes the service's metrics. Nil drops them.
	Metrics prometheus.Registerer
}

// Agent is a node's agent. Make it with New.
type Agent struct {
	cfg   Config
	ready chan struct{}
	keep  atomic.Bool
	// ending is closed by end, when an operator asked for the agent's end.
	ending chan struct{}
	end    func()
}

// New checks the configuration; nothing is touched before Run. Invalid names what is wrong.
func New(cfg Config) (*Agent, error) {
	switch {
	case cfg.Store == nil, cfg.Log == nil, cfg.Templates == nil:
		return nil, errs.New(errs.Invalid, "nodeagent: Store, Templates and Log are required")
	case cfg.DataDir == "":
		return nil, errs.Field("data", "a directory for the agent's data is required")
	case cfg.ClusterSecret == "":
		return nil, errs.Field("cluster.secret", "is required: it protects the agent's API")
	case cfg.CacheMiB < 0:
		return nil, errs.Field("cache-mib", "must not be negative")
	case cfg.OrphanGrace < 0:
		return nil, errs.Field("orphan-grace", "must not be negative")
	}
	if cfg.ProvidersDir != "" {
		dir, err := filepath.Abs(cfg.ProvidersDir)
		if err != nil {
			return nil, errs.As(errs.Invalid, "nodeagent.New", err)
		}
		cfg.ProvidersDir = dir
	}
	if err := checkUser(cfg.InstanceUser); err != nil {
		return nil, err
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
	cfg.Address = cmp.Or(cfg.Address, "127.0.0.1")
	cfg.Listen = cmp.Or(cfg.Listen, DefaultListen)
	cfg.BootID = cmp.Or(cfg.BootID, usage.BootID())
	a := &Agent{cfg: cfg, ready: make(chan struct{}), ending: make(chan struct{})}
	a.end = sync.OnceFunc(func() { close(a.ending) })
	return a, nil
}

// checkUser refuses a user that the agent cannot run instances as.
func checkUser(name string) error {
	if name == "" {
		return nil
	}
	account, err := confine.Lookup(name)
	switch {
	case err != nil:
		return errs.Field("instance-user", "the user %q does not exist on this host: add it, or name another", name)
	case os.Geteuid() != 0 && account.UID != os.Geteuid():
		return errs.Field("instance-user", "only an agent that runs as root can run instances as user %q: start the agent as root, or clear instance-user", name)
	}
	return nil
}

// Ready is closed when the node has joined and offers its runtimes.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Stop is what a program asks of the agent before it cancels Run's context: where
// nobody asked for the end, the instances run on, whatever StopInstancesOnExit says.
// Players must not suffer because something beside the agent failed.
func (a *Agent) Stop(asked func() bool) func(context.Context) error {
	return func(context.Context) error {
		if !asked() {
			a.keep.Store(true)
		}
		return nil
	}
}
