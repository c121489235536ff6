package fleet

import (
	"cmp"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/score"
	"github.com/orreryhq/orrery/libs/fleet/sleep"
)

// Intent is the wish that an instance exists. The enforcer and the gateway write it. Each write
// compares the revision it was computed from.
type Intent struct {
	record.Rev
	ID      InstanceID `json:"id"`
	Name    string     `json:"name"`
	Group   GroupName  `json:"group"`
	Ordinal int        `json:"ordinal"`
	// GroupRevision is the revision of the group's spec from which the current generation was
	// planned.
	GroupRevision int64 `json:"groupRevision"`
	// Deployment is the number of the group's latest deployment when the current generation was
	// planned, 0 before the first one.
	Deployment int64 `json:"deployment,omitempty"`
	// Plan is the digest of the current generation's plan.
	Plan string `json:"plan"`
	// Desired is the wanted state of the instance.
	Desired Desired `json:"desired"`
	// Generation numbers the wanted runs of this instance from 1. Restarting a static instance or
	// starting a stopped one increases it.
	Generation   int64     `json:"generation"`
	GenerationAt time.Time `json:"generationAt"`
	// Leaves is set if the current generation was requested in order to move off a lost node. It
	// is the revision of the OFFLINE status at that time, and the generation may be placed only
	// while that status is unchanged. Otherwise it is 0.
	Leaves int64 `json:"leaves,omitempty"`
	// LeavesNode is the revision of the lost node's record at that time. The generation moves only
	// if the node has not joined again since. It is 0 without a move and in records of older
	// enforcers.
	LeavesNode int64  `json:"leavesNode,omitempty"`
	Origin     Origin `json:"origin"`
	// Replaces is the crashed or lost instance that this one replaces. It may be empty.
	Replaces InstanceID `json:"replaces,omitempty"`
	// ReplacedBy is the instance that replaces this one after a crash or node loss. It is empty
	// before a replacement, and if this instance was kept instead.
	ReplacedBy InstanceID `json:"replacedBy,omitempty"`
	// Displaced is true if the instance was replaced because its node was lost. The end of this
	// generation then never counts as a crash.
	Displaced bool `json:"displaced,omitempty"`
	// Lineage identifies the place in the group that the instance took over, through a chain of
	// replacements, even if the earlier records are gone. Empty means its own ID; see Place.
	Lineage string `json:"lineage,omitempty"`
	// Crashes are the times at which earlier generations from the same GroupRevision crashed,
	// oldest first, at most CrashHistory.
	Crashes   []time.Time `json:"crashes,omitempty"`
	CreatedAt time.Time   `json:"createdAt"`
	// Reason, Message and By say why and by whom the current generation was requested.
	Reason  Reason `json:"reason"`
	Message string `json:"message,omitempty"`
	By      string `json:"by,omitempty"`
	// Stop is set while Desired is stopped.
	Stop *StopRequest `json:"stop,omitempty"`
	// DiscardsData is the generation that a static instance starts without its data, because the
	// node with the data was deleted and a user accepted the loss. 0 means none.
	DiscardsData int64 `json:"discardsData,omitempty"`
	// MovesTo is where a move has copied the data of a static instance. It counts until a generation
	// has been placed there; see Instance.Moved.
	MovesTo *DataCopy `json:"movesTo,omitempty"`
	// Values are placeholder values given at start. They override the group's.
	Values map[string]string `json:"values,omitempty"`
	// RestartPending asks for a new generation once this one has stopped.
	RestartPending bool `json:"restartPending,omitempty"`
	// Frozen keeps the enforcer from stopping the instance as surplus, and from restarting or
	// replacing it when it has ended. It counts towards its group's number meanwhile.
	Frozen bool `json:"frozen,omitempty"`
	// Warm is set while the instance is prepared for later: it takes no players and does not count in
	// its group. Only the enforcer sets it. A new generation does not have it.
	Warm bool `json:"warm,omitempty"`
	// Retire is set while the instance empties before it is stopped. Only the enforcer sets it. A
	// new generation does not have it.
	Retire *Retirement `json:"retire,omitempty"`
	// Standby is set while the instance takes no players although it may be ready: it waits, with the
	// others of its BLUE_GREEN deployment, until it takes over. Only the enforcer changes it.
	Standby bool `json:"standby,omitempty"`
	// Sleep is set while the instance shall sleep. A new generation does not have it.
	Sleep *Nap `json:"sleep,omitempty"`
}

// DataCopy is a complete copy of the data of a static instance.
type DataCopy struct {
	Node     NodeID `json:"node"`
	DataUUID string `json:"dataUuid"`
	// Generation is the latest generation before the copy was made.
	Generation int64 `json:"generation"`
}

// Nap says why and by whom an instance was put to sleep. By is empty for the enforcer.
type Nap struct {
	At      time.Time `json:"at"`
	Reason  Reason    `json:"reason"`
	Message string    `json:"message,omitempty"`
	By      string    `json:"by,omitempty"`
}

// Retirement says why an instance empties before it is stopped, and how long that may take. A
// retiring instance takes no new players. It is stopped once it is empty and the other instances of
// its group are enough, or with its players at the deadline.
type Retirement struct {
	At      time.Time `json:"at"`
	Reason  Reason    `json:"reason"`
	Message string    `json:"message,omitempty"`
	By      string    `json:"by,omitempty"`
	// TransferAfterSeconds is when after At its players are sent to other instances. 0 means at
	// once.
	TransferAfterSeconds int `json:"transferAfterSeconds,omitempty"`
	// DeadlineSeconds is when after At it is stopped even if it has players.
	DeadlineSeconds int `json:"deadlineSeconds"`
	// Restart requests the next generation after the stop. The instance keeps its place and counts
	// in its group meanwhile.
	Restart bool `json:"restart,omitempty"`
}

// Awake returns the intent of an instance that a user wakes. The enforcer requests the next generation
// once the instance sleeps.
func (i Intent) Awake(by, message string) Intent {
	i.Sleep, i.Reason, i.Message, i.By = nil, ReasonWoken, message, by
	return i
}

// Place identifies a place in the group. Instances that replaced each other after a crash or node
// loss have the same place, and only one of them is needed.
func (i Intent) Place() string { return cmp.Or(i.Lineage, string(i.ID)) }

// NextLineage returns the lineage of the next generation. An instance that was replaced or
// deliberately stopped has lost its place, so it gets a new lineage.
func (i Intent) NextLineage() string {
	if i.ReplacedBy == "" && (i.Desired == DesiredRunning || i.RestartPending) {
		return i.Lineage
	}
	return fmt.Sprintf("%s.%d", i.ID, i.Generation+1)
}

// Desired is the wanted state of an instance.
type Desired string

// The desired states.
const (
	DesiredRunning Desired = "running"
	DesiredStopped Desired = "stopped"
)

// Origin says who requested an instance.
type Origin string

// The origins. Only OriginMinimum instances are stopped when the minimum is lowered.
const (
	OriginMinimum Origin = "minimum"
	OriginManual  Origin = "manual"
)

// StopRequest says how and why an instance is to be stopped.
type StopRequest struct {
	// Force kills the instance at once, without the stop sequence.
	Force   bool      `json:"force,omitempty"`
	At      time.Time `json:"at"`
	By      string    `json:"by,omitempty"`
	Reason  Reason    `json:"reason"`
	Message string    `json:"message,omitempty"`
}

// Placement assigns one generation of an instance to a node. The scheduler writes it once; a
// higher generation is a new record.
type Placement struct {
	record.Rev
	Instance   InstanceID `json:"instance"`
	Name       string     `json:"name"`
	Group      GroupName  `json:"group"`
	Node       NodeID     `json:"node"`
	Generation int64      `json:"generation"`
	Plan       string     `json:"plan"`
	// DataUUID identifies the node's data directory that holds the data of a static instance. It
	// is empty for other instances and in records of older schedulers.
	DataUUID  string    `json:"dataUUID,omitempty"`
	Resources Resources `json:"resources"`
	// Port is the main port, 0 if the group has none.
	Port int `json:"port"`
	// Ports are the additional ports by name.
	Ports map[string]int `json:"ports,omitempty"`
	// Alone is true if the group wants the node for itself; see Where.Alone.
	Alone bool `json:"alone,omitempty"`
	// Values are the placeholder values given at start.
	Values map[string]string `json:"values,omitempty"`
	// Epoch is the create-revision of the shard ownership under which it was written.
	Epoch    int64     `json:"epoch"`
	PlacedAt time.Time `json:"placedAt"`
	// FromRevision is the store revision the decision was based on, 0 if unknown.
	FromRevision int64 `json:"fromRevision,omitempty"`
	// Score explains the choice: the rounded score parts of the chosen node.
	Score score.Breakdown `json:"score,omitempty"`
}

// On reports whether n is the node of the placement. It is not if the node was deleted and another
// data directory joined under its ID.
func (p *Placement) On(n *Node) bool {
	return n.ID == p.Node && (p.DataUUID == "" || p.DataUUID == n.DataUUID)
}

// Order is what a placed instance must do now. The enforcer writes it. The agent obeys if its
// generation is the current one.
type Order struct {
	record.Rev
	Instance   InstanceID  `json:"instance"`
	Node       NodeID      `json:"node"`
	Generation int64       `json:"generation"`
	Action     OrderAction `json:"action"`
	By         string      `json:"by,omitempty"`
	Reason     Reason      `json:"reason"`
	Message    string      `json:"message,omitempty"`
	At         time.Time   `json:"at"`
}

// OrderAction is the action of an Order.
type OrderAction string

// The order actions.
const (
	OrderStop  OrderAction = "stop"  // run the stop sequence of the plan
	OrderKill  OrderAction = "kill"  // kill the whole process tree at once
	OrderSleep OrderAction = "sleep" // run the stop sequence, keep the directory and the ports, and report SLEEPING
)

// Pending says why an instance has no placement. The scheduler writes it when the reason changes
// and removes it in the transaction of the placement.
type Pending struct {
	record.Rev
	Instance   InstanceID `json:"instance"`
	Generation int64      `json:"generation"`
	Reason     Reason     `json:"reason"`
	Message    string     `json:"message"`
	// Lost lists the filters that excluded nodes, those that excluded most first.
	Lost []FilterLoss `json:"lost,omitempty"`
	// Nodes is the number of nodes considered.
	Nodes int       `json:"nodes"`
	At    time.Time `json:"at"`
	// FromRevision is the store revision the decision was based on, 0 if unknown.
	FromRevision int64 `json:"fromRevision,omitempty"`
}

// FilterLoss is the number of nodes that a filter excluded.
type FilterLoss struct {
	Filter string `json:"filter"`
	Nodes  int    `json:"nodes"`
	// Fix says what would make the closest of these nodes fit.
	Fix string `json:"fix,omitempty"`
}

// Status is what an agent observed about one generation of an instance. The agent writes it under
// its session's fence. The enforcer writes it only for nodes without a session.
type Status struct {
	record.Rev
	Instance   InstanceID `json:"instance"`
	Group      GroupName  `json:"group"`
	Node       NodeID     `json:"node"`
	Generation int64      `json:"generation"`
	// Epoch is the create-revision of the node session under which it was written.
	Epoch   int64  `json:"epoch"`
	State   State  `json:"state"`
	Reason  Reason `json:"reason"`
	Message string `json:"message,omitempty"`
	// PID is the process ID of the server itself, not of a launcher. 0 if none runs.
	PID int `json:"pid,omitempty"`
	// Restarts counts in-place restarts of this generation.
	Restarts int `json:"restarts,omitempty"`
	// Crashes are the times at which earlier runs of this generation crashed, oldest first, if
	// they are the reason why the agent did not restart it in place again.
	Crashes []time.Time `json:"crashes,omitempty"`
	// Exit is set in terminal states that follow a process.
	Exit *Exit `json:"exit,omitempty"`
	// HostAddress is the advertised address with placeholders replaced.
	HostAddress string    `json:"hostAddress,omitempty"`
	StartedAt   time.Time `json:"startedAt,omitzero"`
	OnlineAt    time.Time `json:"onlineAt,omitzero"`
	FinishedAt  time.Time `json:"finishedAt,omitzero"`
	ChangedAt   time.Time `json:"changedAt"`
	// TokenHash is the SHA-256 of the instance's own token, in hex.
	TokenHash string `json:"tokenHash,omitempty"`
	// Wake is set in the state SLEEPING once something on the network asks the instance to wake.
	Wake *sleep.Call `json:"wake,omitempty"`
}

// Exit describes how a process ended.
type Exit struct {
	// Code is the exit code, or 128+n after signal n. It is meaningless if Known is false.
	Code int `json:"code"`
	// Signal is the name of the signal that ended the process, e.g. "KILL". Empty if it exited by
	// itself.
	Signal string `json:"signal,omitempty"`
	// Known is false if the agent could not observe the exit.
	Known bool `json:"known"`
	// OOM is true if the kernel killed it for lack of memory.
	OOM bool `json:"oom,omitempty"`
	// LimitMiB is the memory limit at which it was killed, 0 if the host itself ran out of memory.
	LimitMiB int `json:"limitMiB,omitempty"`
	// Hangup is true if it ended after its terminal was gone: the terminal session was closed or
	// the terminal multiplexer died.
	Hangup bool `json:"hangup,omitempty"`
}
