package driver

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/nodeagent/internal/content/provider"
	"github.com/orreryhq/orrery/nodeagent/internal/content/secrets"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/health"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/turns"
	"github.com/orreryhq/orrery/nodeagent/internal/node/deadline"
	"github.com/orreryhq/orrery/nodeagent/internal/node/guard"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/node/tenants"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/diskusage"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/presence"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// Deps are shared by all instances of an agent. All fields except Rebooted, Held and Tenants are required.
type Deps struct {
	// Runtimes are those that the node offers or may offer later (runtime.Checker). One is process.
	Runtimes  map[fleet.RuntimeName]runtime.Runtime
	Journal   *journal.Journal
	Workspace *workspace.Builder
	// DataDir is the directory with the files of runs and the logs.
	DataDir string
	// BootID identifies the current boot of the host.
	BootID string
	// Now reads the wall clock, with a monotonic reading.
	Now func() time.Time
	// Rebooted is true if the host was restarted since the previous agent.
	Rebooted bool
	// Held is true if journalled instances wait until the node has joined; see Live.
	Held bool
	// Starts bounds how many instances start at the same time.
	Starts *turns.Turns
	// Host holds the host's values for the environments of instances.
	Host workspace.Host
	// User is the default user of runs whose group names none. Empty means the agent's own.
	User string
	// Tenants are the ids of runs whose group names no user. Nil means that they run as User.
	Tenants *tenants.Numbers
	// TenantNumber reads the number of a static group. NotFound if the group has no number.
	TenantNumber func(ctx context.Context, g fleet.GroupName) (int, error)
	// Policy is what runs may use. It admits User.
	Policy policy.Policy
	// APIURL is the gateway's address for instances. RelayURL is used instead outside of containers, which do
	// not share the host's loopback; empty if there is no relay.
	APIURL   func() string
	RelayURL string
	// Node is the node's current record.
	Node func() fleet.Node
	// Plan reads a plan. NotFound if it does not exist.
	Plan func(ctx context.Context, digest string) (fleet.Plan, error)
	// Providers are the operator's programs that provide placeholder values.
	Providers *provider.Providers
	// Secrets resolves references to secrets.
	Secrets *secrets.Resolver
	// Claim writes under the node's session that an exclusive instance is about to start.
	// NotFound if its placement is no longer valid.
	Claim func(ctx context.Context, p fleet.Placement) error
	// UsedByOther reports whether a server of another instance of the agent has a port.
	UsedByOther func(port int, than fleet.InstanceID) bool
	// Block makes the scheduler avoid a port that another program uses.
	Block func(ctx context.Context, b fleet.BlockedPort)
	// History identifies the store's history for a run that begins now; see journal.History.
	History func() string
	// Deadline limits how long exclusive instances may run. Guards runs their guards.
	Deadline *deadline.Keeper
	Guards   *guard.Launcher
	// Report receives each new status; it must not block.
	Report func(fleet.Status)
	// Record stores a crash and its last output until the store has them.
	Record func(reports.Crash, reports.CrashTail)
	// Forgotten is called when everything about an instance is removed.
	Forgotten func(fleet.InstanceID)
	// Disk measures the instances' directories.
	Disk *diskusage.Meter
	// Logs limits the logs of running instances and notifies their readers.
	Logs *console.Follower
	// Players holds the players on all instances of the node.
	Players *presence.Registry
	// Gateway reports whether heartbeats of instances could arrive.
	Gateway *health.Gateway
	Log     *slog.Logger
}

// apiURL is the gateway's address for an instance.
func (d *Deps) apiURL(plan fleet.Plan) string {
	if plan.Runtime == fleet.RuntimeDocker {
		return d.APIURL()
	}
	return cmp.Or(d.RelayURL, d.APIURL())
}

// nodeValues are the node's current values for placeholders of an instance.
func (d *Deps) nodeValues(plan fleet.Plan) *journal.NodeValues {
	n := d.Node()
	return &journal.NodeValues{Address: n.Address, Variables: n.Variables, APIURL: d.apiURL(plan), AgentURL: n.AgentURL}
}

// values returns the placeholder values of an instance and its advertised address. nodeValues
// are the node's values at the time it was built; nil means the current ones.
func (d *Deps) values(plan fleet.Plan, p fleet.Placement, nodeValues *journal.NodeValues) (values map[string]string, hostAddress string, notes []string) {
	n := d.Node()
	if nodeValues == nil {
		nodeValues = d.nodeValues(plan)
	}
	n.Address, n.Variables, n.AgentURL = nodeValues.Address, nodeValues.Variables, cmp.Or(nodeValues.AgentURL, n.AgentURL)
	return workspace.Values(plan, p, n, nodeValues.APIURL)
}

// request describes the directory to build. uid is the instance's own id, or 0. Containers use the user of
// their image.
func (d *Deps) request(p fleet.Placement, plan fleet.Plan, values map[string]string, uid int) workspace.Request {
	if plan.Runtime != fleet.RuntimeDocker {
		plan.Confine.User = cmp.Or(plan.Confine.User, d.User)
	}
	return workspace.Request{Placement: p, Plan: plan, Values: values, UID: uid}
}

// RunDir is the directory of a runtime's files of an instance.
func (d *Deps) RunDir(id fleet.InstanceID) string { return filepath.Join(d.DataDir, "run", string(id)) }

// TmpDir is an instance's private /tmp. It is always on the disk, unlike RunDir.
func (d *Deps) TmpDir(id fleet.InstanceID) string {
	return filepath.Join(d.DataDir, "tmp", string(id), "tmp")
}

// LogPath is the file with an instance's output. All logs share one directory, because
// creating a directory costs more than creating the file.
func (d *Deps) LogPath(id fleet.InstanceID) string {
	return filepath.Join(d.DataDir, "logs", string(id)+".log")
}
