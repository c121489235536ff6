package fleet

import (
	"net/url"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Node is a host with an agent. The agent writes it whenever it joins, in the transaction that
// opens its session. A changed revision therefore means that the node has joined again.
type Node struct {
	record.Rev
	ID NodeID `json:"id"`
	// DataUUID identifies the agent's data directory. A node ID belongs to one data directory.
	DataUUID string `json:"dataUuid"`
	// Address is the address at which players reach the host.
	Address string `json:"address"`
	// AgentURL is the URL at which the gateway reaches the agent's API.
	AgentURL string            `json:"agentUrl"`
	Version  string            `json:"version,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Variables are the node's placeholder values.
	Variables map[string]string `json:"variables,omitempty"`
	Capacity  Resources         `json:"capacity"`
	// Room is how much of Capacity instances may reserve, from the agent's settings.
	Room     NodeRoom      `json:"room,omitzero"`
	Runtimes []NodeRuntime `json:"runtimes"`
	// Limits says which limits the host can enforce on its instances.
	Limits NodeLimits `json:"limits,omitzero"`
	// Tenants says whether instances are isolated from each other. Nil for older agents.
	Tenants *isolation.Tenants `json:"tenants,omitempty"`
	// Policy is what instances may use, from the agent's settings. Nil for older agents, which admit everything.
	Policy *policy.Policy `json:"policy,omitempty"`
	// SealKeys are the IDs of the agent's key-encryption keys, or cluster.AsksForSecrets. Nil for older agents.
	SealKeys []string `json:"sealKeys,omitempty"`
	// BlockedPorts are ports that foreign programs use. The scheduler avoids each for
	// PortBlockedFor. The agent removes a port as soon as it is free.
	BlockedPorts []BlockedPort `json:"blockedPorts,omitempty"`
	Host         HostInfo      `json:"host"`
	// SessionTTLSeconds is the TTL that etcd granted to the node's latest session. 0 means the store's default.
	SessionTTLSeconds int `json:"sessionTtlSeconds,omitempty"`
	// Released is true if the agent stopped all instances before it closed its latest session: none runs.
	Released bool      `json:"released,omitempty"`
	JoinedAt time.Time `json:"joinedAt"`
}

// NodeRoom says how much of a node's capacity instances may reserve.
type NodeRoom struct {
	// Reserved is kept free for the host itself.
	Reserved Resources `json:"reserved,omitzero"`
	// CPUFactor is the CPU overcommit: how often each hundredth of a core may be reserved. 0 means
	// once.
	CPUFactor float64 `json:"cpuFactor,omitempty"`
	// MaxInstances bounds the instances on the node. 0 means no limit.
	MaxInstances int `json:"maxInstances,omitempty"`
}

// MaxCPUFactor bounds NodeRoom.CPUFactor.
const MaxCPUFactor = 100

// Validate returns everything that is wrong with r, each as an Invalid error that names the field.
func (r NodeRoom) Validate() []error {
	var p validate.Problems
	p.Check(r.CPUFactor >= 0 && r.CPUFactor <= MaxCPUFactor, "cpuFactor", "must be between 0 (once) and %d, is %v", MaxCPUFactor, r.CPUFactor)
	p.Check(r.MaxInstances >= 0 && r.MaxInstances <= validate.MaxInstances, "maxInstances", "must be between 0 (no limit) and %d, is %d", validate.MaxInstances, r.MaxInstances)
	for _, err := range r.Reserved.validate() {
		p.List = append(p.List, errs.Field("reserved."+errs.FieldOf(err), "%s", errs.MessageOf(err)))
	}
	return p.List
}

// NodeRuntime says whether a node offers a runtime, and if not, why.
type NodeRuntime struct {
	Name    RuntimeName `json:"name"`
	Offered bool        `json:"offered"`
	Why     string      `json:"why,omitempty"`
}

// The limits a host can enforce.
const (
	LimitMemory    = "memory"
	LimitCPU       = "cpu"
	LimitProcesses = "processes"
	LimitIO        = "io"
)

// NodeLimits says which limits a host enforces on its instances, and how.
type NodeLimits struct {
	// By is cgroup2, cgroup1, both joined by a plus, or none.
	By string `json:"by"`
	// Held are the enforced limits: LimitMemory and so on.
	Held []string `json:"held,omitempty"`
	// Why says why the other limits are not enforced. It is empty if all are.
	Why string `json:"why,omitempty"`
}

// Holds reports whether a limit is enforced.
func (l NodeLimits) Holds(limit string) bool { return slices.Contains(l.Held, limit) }

// PortBlockedFor is how long the scheduler avoids a port that a foreign program uses, unless the agent finds it free.
const PortBlockedFor = 5 * time.Minute

// PortPatience is how long an agent waits for a port that another of its instances uses, or only
// closed connections of a program that has ended. Linux keeps those for a minute.
const PortPatience = 75 * time.Second

// BlockedPort is a port that a foreign program uses.
type BlockedPort struct {
	Port int `json:"port"`
	// By names the program. It is empty in records of earlier agents.
	By string `json:"by,omitempty"`
	// Until is when the block ends by the host's clock. It distinguishes two findings of the same
	// port and is displayed.
	Until time.Time `json:"until"`
}

// AgentPort returns the port of AgentURL, or "".
func (n Node) AgentPort() string {
	u, err := url.Parse(n.AgentURL)
	if err != nil {
		return ""
	}
	return u.Port()
}

// Offers reports whether the node offers the runtime.
func (n Node) Offers(r RuntimeName) bool {
	for _, o := range n.Runtimes {
		if o.Name == r {
			return o.Offered
		}
	}
	return false
}

// HostInfo describes the machine for display.
type HostInfo struct {
	OSName       string `json:"osName,omitempty"`
	OSVersion    string `json:"osVersion,omitempty"`
	Arch         string `json:"arch,omitempty"`
	CPUModel     string `json:"cpuModel,omitempty"`
	LogicalCores int    `json:"logicalCores,omitempty"`
	// PhysicalCores and MaxFreqHz are 0 if unknown, e.g. on a virtual machine.
	PhysicalCores int    `json:"physicalCores,omitempty"`
	MaxFreqHz     int64  `json:"maxFreqHz,omitempty"`
	TotalMiB      int    `json:"totalMiB,omitempty"`
	Hostname      string `json:"hostname,omitempty"`
}

// NodeDesired is the operator's configuration of a node. The gateway writes it.
type NodeDesired struct {
	record.Rev
	Node     NodeID `json:"node"`
	Cordoned bool   `json:"cordoned,omitempty"`
	// Drain empties the node. It is set from the request until the drain is ended by a user, also
	// after it is complete. A drained node is cordoned.
	Drain *NodeDrain `json:"drain,omitempty"`
	// Deleted says that a node without a session will not come back. The enforcer gives up its
	// instances and removes its records.
	Deleted bool `json:"deleted,omitempty"`
	// Labels replace the node's own labels if not nil. An empty map removes them all.
	Labels map[string]string `json:"labels,omitzero"`
	// Room replaces the node's own if set.
	Room *NodeRoom `json:"room,omitempty"`
	By   string    `json:"by,omitempty"`
	At   time.Time `json:"at"`
}

// NodeDrain is a request to empty a node.
type NodeDrain struct {
	// ID distinguishes the drains of a node.
	ID string    `json:"id"`
	By string    `json:"by,omitempty"`
	At time.Time `json:"at"`
	// TimeoutSeconds is how long instances may keep their players. Then they are stopped with them.
	TimeoutSeconds int `json:"timeoutSeconds"`
	// Shutdown also shuts the node's agent down once no instance is left.
	Shutdown bool `json:"shutdown,omitempty"`
	// KickMessage is for the players that are still there at the timeout. It may be empty.
	KickMessage string `json:"kickMessage,omitempty"`
	// MoveStatic also moves the static instances to other nodes, with their data. Otherwise they stay
	// down until the drain is ended.
	MoveStatic bool `json:"moveStatic,omitempty"`
	// CompletedAt is when the node was empty, and its agent shut down if requested. It is zero before.
	CompletedAt time.Time `json:"completedAt,omitzero"`
}

// Bounds of a drain.
const (
	DefaultDrainSeconds = 60
	MaxDrainSeconds     = 24 * 60 * 60
	MaxKickMessage      = 200 // characters
)

// Timeout returns TimeoutSeconds as a duration.
func (d NodeDrain) Timeout() time.Duration { return time.Duration(d.TimeoutSeconds) * time.Second }

// Draining returns the drain that is not complete, or nil. d may be nil.
func (d *NodeDesired) Draining() *NodeDrain {
	if d == nil || d.Drain == nil || !d.Drain.CompletedAt.IsZero() {
		return nil
	}
	return d.Drain
}

// NodeSession is a node's liveness: it exists while the agent's lease is alive. Its
// create-revision is the epoch of everything the agent writes.
type NodeSession struct {
	record.Rev
	Node     NodeID `json:"node"`
	DataUUID string `json:"dataUuid"`
	// Holder identifies the data directory on this host since its last boot, so a copy of the
	// directory has another holder. A new agent with the same holder has proved with a lock that
	// the agent of this session is dead.
	Holder    string    `json:"holder,omitempty"`
	StartedAt time.Time `json:"startedAt"`
}

// Alloc is written by every placement transaction on a node, so two schedulers cannot assign the
// same resources.
type Alloc struct {
	record.Rev
	Node NodeID `json:"node"`
}

// Blank replaces a damaged alloc with one that names no node.
func (a *Alloc) Blank() { *a = Alloc{} }
