package fleet

import (
	"net/url"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// Node is a host with an agent. The agent writes it at each join, in the transaction
// that opens its session, so its revision tells whether the node has joined since.
type Node struct {
	Rev
	ID NodeID `json:"id"`
	// DataUUID is the identity of the agent's data directory: a node id belongs to one.
	DataUUID string `json:"dataUuid"`
	// Address is where players reach the host.
	Address string `json:"address"`
	// AgentURL is where the gateway reaches the agent's API.
	AgentURL string            `json:"agentUrl"`
	Version  string            `json:"version,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Variables are the node's placeholder values.
	Variables map[string]string `json:"variables,omitempty"`
	Capacity  Resources         `json:"capacity"`
	// Room is what the agent's settings say about the use of Capacity.
	Room     NodeRoom      `json:"room,omitzero"`
	Runtimes []NodeRuntime `json:"runtimes"`
	// Limits says which limits of its instances the host holds.
	Limits NodeLimits `json:"limits,omitzero"`
	// BlockedPorts are ports that strangers were found to hold. The scheduler avoids each
	// for PortBlockedFor; the agent removes it as soon as it is free.
	BlockedPorts []BlockedPort `json:"blockedPorts,omitempty"`
	Host         HostInfo      `json:"host"`
	// SessionTTLSeconds is the TTL of the node's latest session, as etcd granted it.
	// 0 means the store's default.
	SessionTTLSeconds int `json:"sessionTtlSeconds,omitempty"`
	// Released is true when the agent had ended all instances before it closed its
	// latest session: no copy of what is placed there runs.
	Released bool      `json:"released,omitempty"`
	JoinedAt time.Time `json:"joinedAt"`
}

// NodeRoom says how much of a node's capacity instances may reserve.
type NodeRoom struct {
	// Reserved is kept for the host itself.
	Reserved Resources `json:"reserved,omitzero"`
	// CPUFactor is how often each hundredth of a core may be reserved. 0 means once.
	CPUFactor float64 `json:"cpuFactor,omitempty"`
	// MaxInstances bounds the instances on the node. 0 does not.
	MaxInstances int `json:"maxInstances,omitempty"`
}

// MaxCPUFactor bounds NodeRoom.CPUFactor.
const MaxCPUFactor = 100

// ValidateNodeLabels lists everything wrong with a node's labels, each an Invalid
// error that names the field.
func ValidateNodeLabels(labels map[string]string) []error { return validateLabels("labels", labels) }

// Validate lists everything wrong with it, each an Invalid error that names the field.
func (r NodeRoom) Validate() []error {
	var p problems
	p.check(r.CPUFactor >= 0 && r.CPUFactor <= MaxCPUFactor, "cpuFactor", "must be between 0 (once) and %d, is %v", MaxCPUFactor, r.CPUFactor)
	p.check(r.MaxInstances >= 0 && r.MaxInstances <= maxInstances, "maxInstances", "must be between 0 (no bound) and %d, is %d", maxInstances, r.MaxInstances)
	for _, err := range r.Reserved.validate() {
		p.list = append(p.list, errs.Field("reserved."+errs.FieldOf(err), "%s", errs.MessageOf(err)))
	}
	return p.list
}

// NodeRuntime says whether a node offers a runtime, and why not.
type NodeRuntime struct {
	Name    RuntimeName `json:"name"`
	Offered bool        `json:"offered"`
	Why     string      `json:"why,omitempty"`
}

// The limits a node's host may hold.
const (
	LimitMemory    = "memory"
	LimitCPU       = "cpu"
	LimitProcesses = "processes"
	LimitIO        = "io"
)

// NodeLimits says which limits of its instances a node's host holds, and by what.
type NodeLimits struct {
	// By is cgroup2, cgroup1, both of them joined by a plus, or none.
	By string `json:"by"`
	// Held are those of LimitMemory and so on that are held.
	Held []string `json:"held,omitempty"`
	// Why says why the others are not; empty when all are.
	Why string `json:"why,omitempty"`
}

// Holds reports whether a limit is held.
func (l NodeLimits) Holds(limit string) bool { return slices.Contains(l.Held, limit) }

// PortBlockedFor is how long the scheduler avoids a port that a stranger holds, unless the
// node's agent finds it free before.
const PortBlockedFor = 5 * time.Minute

// PortPatience is how long an agent waits for a port that only connections of a program
// that has ended hold: longer than the minute for which Linux keeps them.
const PortPatience = 75 * time.Second

// BlockedPort is a port held by a stranger.
type BlockedPort struct {
	Port int `json:"port"`
	// By names the stranger; empty in records of earlier agents.
	By string `json:"by,omitempty"`
	// Until tells two findings apart, and is shown; it is of the host's clock.
	Until time.Time `json:"until"`
}

// AgentPort is the port of AgentURL; empty when it names none.
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

// HostInfo describes the machine for people.
type HostInfo struct {
	OSName       string `json:"osName,omitempty"`
	OSVersion    string `json:"osVersion,omitempty"`
	Arch         string `json:"arch,omitempty"`
	CPUModel     string `json:"cpuModel,omitempty"`
	LogicalCores int    `json:"logicalCores,omitempty"`
	// PhysicalCores and MaxFreqHz are 0 where nobody knows, as on a virtual machine.
	PhysicalCores int    `json:"physicalCores,omitempty"`
	MaxFreqHz     int64  `json:"maxFreqHz,omitempty"`
	TotalMiB      int    `json:"totalMiB,omitempty"`
	Hostname      string `json:"hostname,omitempty"`
}

// NodeDesired is the operator's will for a node. The gateway writes it.
type NodeDesired struct {
	Rev
	Node     NodeID `json:"node"`
	Cordoned bool   `json:"cordoned,omitempty"`
	// Deleted says that a node without a session will not come back: what its
	// instances hold is given up and its records are removed.
	Deleted bool `json:"deleted,omitempty"`
	// Labels replace the node's own where they are not nil; empty, it has none.
	Labels map[string]string `json:"labels,omitzero"`
	// Room replaces the node's own where it is set.
	Room *NodeRoom `json:"room,omitempty"`
	By   string    `json:"by,omitempty"`
	At   time.Time `json:"at"`
}

// NodeSession is a node's liveness: it exists while the agent's lease lives.
// Its create-revision is the epoch of everything the agent writes.
type NodeSession struct {
	Rev
	Node     NodeID `json:"node"`
	DataUUID string `json:"dataUuid"`
	// Holder tells the data directory from a copy of it, on this host since its last
	// boot: an agent of the same holder has proved by a lock that this one is dead.
	Holder    string    `json:"holder,omitempty"`
	StartedAt time.Time `json:"startedAt"`
}

// Session is the liveness of a service replica: it exists while its lease lives.
type Session struct {
	Rev
	Service string `json:"service"`
	Replica string `json:"replica"`
	// URL is where the replica's HTTP API is reached; empty when it has none.
	URL       string    `json:"url,omitempty"`
	Version   string    `json:"version,omitempty"`
	StartedAt time.Time `json:"startedAt"`
}

// Shard is the ownership of a shard by a replica of a service. Its
// create-revision is the fencing token.
type Shard struct {
	Rev
	Service string `json:"service"`
	Replica string `json:"replica"`
}

// Alloc is touched by every placement transaction on a node, so that two
// schedulers can never hand out the same room.
type Alloc struct {
	Rev
	Node NodeID `json:"node"`
}

// Report is a node's usage and its instances' live figures, folded into one key.
// The agent writes it when something in it changed meaningfully.
type Report struct {
	Rev
	Node NodeID `json:"node"`
	// CPU is the host's use, 0..1. MemoryMiB and DiskFreeMiB are the host's.
	CPU         float64 `json:"cpu"`
	MemoryMiB   int     `json:"memoryMiB"`
	DiskFreeMiB int     `json:"diskFreeMiB"`
	DiskMiB     int     `json:"diskMiB"`
	// Instances are in the record itself only when Parted is false, as older agents write
	// it. Otherwise they are in the node's ReportParts, and a view adds them.
	Instances map[InstanceID]InstanceReport `json:"instances,omitempty"`
	Parted    bool                          `json:"parted,omitempty"`
	// Warm are digests of template versions that are in the node's cache, but for what
	// other layers replaced when they were used; those used last, in order of digest; at most MaxWarm.
	Warm []string `json:"warm,omitempty"`
	// StaticBytes are the sizes of the directories of static instances, by GROUP/NAME, as
	// measured last; at most MaxStatic, the largest. Nil of an agent that does not tell.
	StaticBytes map[string]int64 `json:"staticBytes,omitempty"`
	// CacheBytes is the size of what the node's cache holds; 0 also of an agent that does not tell.
	CacheBytes int64     `json:"cacheBytes,omitempty"`
	At         time.Time `json:"at"`
	// EverySeconds is after how many seconds at most the agent writes the next report, changed or
	// not; 0 of an older agent, which writes only what changed.
	EverySeconds int `json:"everySeconds,omitempty"`
}

// MaxWarm bounds Report.Warm.
const MaxWarm = 32

// MaxStatic bounds Report.StaticBytes.
const MaxStatic = 256

// InstanceReport is one instance's live figures.
type InstanceReport struct {
	Players    int `json:"players,omitempty"`
	MaxPlayers int `json:"maxPlayers,omitempty"`
	// PlayersKnown is true when the instance said how many there are, or answered when it was asked.
	PlayersKnown bool `json:"playersKnown,omitempty"`
	// HeartbeatAt is when the instance last spoke from inside; zero when never.
	HeartbeatAt time.Time `json:"heartbeatAt,omitzero"`
	// TPS is ticks per second as the instance says; 0 when it never did.
	TPS float64 `json:"tps,omitempty"`
	// Usage is what it takes of the host, as the agent measures it.
	Usage Usage `json:"usage,omitzero"`
}

// InstanceSaid is what an instance says of itself; nil where it does not.
type InstanceSaid struct {
	Players, MaxPlayers *int
	TPS                 *float64
	At                  time.Time
}

// With is the report with what the instance said since.
func (r InstanceReport) With(s InstanceSaid) InstanceReport {
	if s.Players != nil {
		r.Players, r.PlayersKnown = *s.Players, true
	}
	if s.MaxPlayers != nil {
		r.MaxPlayers = *s.MaxPlayers
	}
	if s.TPS != nil {
		r.TPS = *s.TPS
	}
	if s.At.After(r.HeartbeatAt) {
		r.HeartbeatAt = s.At
	}
	return r
}
