package supervise

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/console"
	"github.com/orreryhq/orrery/nodeagent/internal/deadline"
	"github.com/orreryhq/orrery/nodeagent/internal/disk"
	"github.com/orreryhq/orrery/nodeagent/internal/guard"
	"github.com/orreryhq/orrery/nodeagent/internal/health"
	"github.com/orreryhq/orrery/nodeagent/internal/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/presence"
	"github.com/orreryhq/orrery/nodeagent/internal/provide"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/secrets"
	"github.com/orreryhq/orrery/nodeagent/internal/workspace"
)

// Kit is what all instances of an agent share. Every field but Rebooted and Held is required.
type Kit struct {
	// Runtimes are those the node offers, or may offer, see runtime.Lent; process is one of them.
	Runtimes  map[fleet.RuntimeName]runtime.Runtime
	Journal   *journal.Journal
	Workspace *workspace.Builder
	// DataDir is below which runs and logs live.
	DataDir string
	// BootID identifies the running kernel.
	BootID string
	// Now reads the wall clock, with a monotonic reading.
	Now func() time.Time
	// Rebooted is true when the host was restarted since the agent before this one.
	Rebooted bool
	// Held is true when journalled instances wait for the node to join; see Live.
	Held bool
	// Host is what environments take over from the host.
	Host workspace.Host
	// User is the host's user for runs whose group names none. Empty: the agent's own.
	User string
	// APIURL is the gateway's address as seen by instances.
	APIURL func() string
	// Node is the node's current record.
	Node func() fleet.Node
	// Plan reads a plan. NotFound when there is none.
	Plan func(ctx context.Context, digest string) (fleet.Plan, error)
	// Providers are the operator's programs that give placeholders.
	Providers *provide.Providers
	// Secrets follows references to secrets.
	Secrets *secrets.Resolver
	// Claim tells the store, under the node's session, that a placed instance is about
	// to start. NotFound when its placement does not stand any more.
	Claim func(ctx context.Context, p fleet.Placement) error
	// Block has the scheduler avoid a port that a stranger holds.
	Block func(ctx context.Context, b fleet.BlockedPort)
	// Past names the store's present past, for a run that begins now; see journal.Past.
	Past func() string
	// Tenure is until when exclusive instances may run, Guards runs their guards.
	Tenure *deadline.Keeper
	Guards *guard.Post
	// Report takes each new status; it must not block.
	Report func(fleet.Status)
	// Record keeps the end of a run that nobody asked for until the store has it.
	Record func(fleet.Crash, fleet.CrashTail)
	// Forgotten is called when nothing of an instance is left.
	Forgotten func(fleet.InstanceID)
	// Disk measures what instances' directories hold.
	Disk *disk.Meter
	// Logs keeps the logs of what runs, and is told of the instances' ends.
	Logs *console.Follower
	// Players are the players on all instances of the node.
	Players *presence.Board
	// Door tells whether what instances say of themselves could arrive.
	Door *health.Door
	Log  *slog.Logger
}

// surroundings are what the node's placeholders are made of now.
func (k *Kit) surroundings() *journal.Surroundings {
	n := k.Node()
	return &journal.Surroundings{Address: n.Address, Variables: n.Variables, APIURL: k.APIURL(), AgentURL: n.AgentURL}
}

// values are the placeholder values of an instance and its advertised address in the
// surroundings that it was built in; nil are those of now.
func (k *Kit) values(plan fleet.Plan, p fleet.Placement, around *journal.Surroundings) (values map[string]string, hostAddress string, notes []string) {
	n := k.Node()
	if around == nil {
		around = k.surroundings()
	}
	n.Address, n.Variables, n.AgentURL = around.Address, around.Variables, cmp.Or(around.AgentURL, n.AgentURL)
	return workspace.Values(plan, p, n, around.APIURL)
}

// request is what a directory is built from. Containers keep the user of their image.
func (k *Kit) request(p fleet.Placement, plan fleet.Plan, values map[string]string) workspace.Request {
	if plan.Runtime != fleet.RuntimeDocker {
		plan.Confine.User = cmp.Or(plan.Confine.User, k.User)
	}
	return workspace.Request{Placement: p, Plan: plan, Values: values}
}

// RunDir is where a runtime keeps its files of an instance.
func (k *Kit) RunDir(id fleet.InstanceID) string { return filepath.Join(k.DataDir, "run", string(id)) }

// TmpDir is where an instance's own /tmp lies, if it has one: on the disk, whatever RunDir is on.
func (k *Kit) TmpDir(id fleet.InstanceID) string {
	return filepath.Join(k.DataDir, "tmp", string(id), "tmp")
}

// LogPath is the file that takes an instance's output. All lie in one directory: to make
// one for each costs more than the file.
func (k *Kit) LogPath(id fleet.InstanceID) string {
	return filepath.Join(k.DataDir, "logs", string(id)+".log")
}
