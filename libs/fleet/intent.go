package fleet

import (
	"cmp"
	"fmt"
	"time"
)

// Intent is that an instance shall exist. Written by the enforcer and the
// gateway, each write comparing the revision it was computed from.
type Intent struct {
	Rev
	ID      InstanceID `json:"id"`
	Name    string     `json:"name"`
	Group   GroupName  `json:"group"`
	Ordinal int        `json:"ordinal"`
	// GroupRevision is the group's spec revision the current generation was planned from.
	GroupRevision int64 `json:"groupRevision"`
	// Plan is the digest of the current generation's plan.
	Plan string `json:"plan"`
	// Desired is what the instance shall do.
	Desired Desired `json:"desired"`
	// Generation counts the runs wanted of this instance, from 1. A restart of a
	// static instance, or a start of a stopped one, is a higher generation.
	Generation   int64     `json:"generation"`
	GenerationAt time.Time `json:"generationAt"`
	// Leaves is the revision of the OFFLINE status because of which the current
	// generation was asked for, on another node than the one before it: it may be
	// placed only while that status stands. 0 when it was not asked for so.
	Leaves int64 `json:"leaves,omitempty"`
	// LeavesNode is the revision of the lost node's record at that time: the generation
	// is placed elsewhere only while the node has not joined again. 0 when it was not
	// asked for so, or by an enforcer that did not know of it.
	LeavesNode int64  `json:"leavesNode,omitempty"`
	Origin     Origin `json:"origin"`
	// Replaces is the crashed or lost instance this one was made for; empty when none.
	Replaces InstanceID `json:"replaces,omitempty"`
	// ReplacedBy is the instance made for this one after it crashed or was lost; empty when
	// there is none, or this one stayed in its stead.
	ReplacedBy InstanceID `json:"replacedBy,omitempty"`
	// Displaced is true when it was replaced because its node was lost: however this
	// generation ends, that is no crash of its own.
	Displaced bool `json:"displaced,omitempty"`
	// Lineage names whose place it has: the instance that the one it replaces replaced,
	// and so on back to the first, whatever has become of their records. Empty stands for
	// its own id; see Place.
	Lineage string `json:"lineage,omitempty"`
	// Crashes are when earlier generations from the same GroupRevision crashed, oldest
	// first, at most CrashHistory.
	Crashes   []time.Time `json:"crashes,omitempty"`
	CreatedAt time.Time   `json:"createdAt"`
	// Reason, Message and By say why the current generation was asked for, and who asked.
	Reason  Reason `json:"reason"`
	Message string `json:"message,omitempty"`
	By      string `json:"by,omitempty"`
	// Stop is set while Desired is stopped.
	Stop *StopRequest `json:"stop,omitempty"`
	// DiscardsData is the generation whose data a static instance starts without, because
	// the node that had it was deleted and somebody asked for it. 0 without such a request.
	DiscardsData int64 `json:"discardsData,omitempty"`
	// Values are placeholder values given at start, above the group's own.
	Values map[string]string `json:"values,omitempty"`
	// RestartPending asks for a new generation once this one has stopped.
	RestartPending bool `json:"restartPending,omitempty"`
	// Frozen keeps the enforcer from stopping the instance as one too many, and from
	// starting it or another in its place when it has ended. It counts in its group meanwhile.
	Frozen bool `json:"frozen,omitempty"`
}

// Place is the same for all that were made one after the other to have one place in
// their group, each because the one before crashed or was lost: of them one is enough.
func (i Intent) Place() string { return cmp.Or(i.Lineage, string(i.ID)) }

// Anew is the lineage of the next generation. One whose place somebody else has got, or
// that was given up by stopping it, is one more from then on.
func (i Intent) Anew() string {
	if i.ReplacedBy == "" && (i.Desired == DesiredRunning || i.RestartPending) {
		return i.Lineage
	}
	return fmt.Sprintf("%s.%d", i.ID, i.Generation+1)
}

// Desired is what an instance shall do.
type Desired string

// The desired states.
const (
	DesiredRunning Desired = "running"
	DesiredStopped Desired = "stopped"
)

// Origin is who wanted an instance to exist.
type Origin string

// The origins. The minimum count only ever trims OriginMinimum.
const (
	OriginMinimum Origin = "minimum"
	OriginManual  Origin = "manual"
)

// StopRequest says how and why an instance shall stop.
type StopRequest struct {
	// Force kills at once instead of asking.
	Force   bool      `json:"force,omitempty"`
	At      time.Time `json:"at"`
	By      string    `json:"by,omitempty"`
	Reason  Reason    `json:"reason"`
	Message string    `json:"message,omitempty"`
}

// Placement is where one generation of an instance runs. Written by the
// scheduler once; a higher generation is a new record.
type Placement struct {
	Rev
	Instance   InstanceID `json:"instance"`
	Name       string     `json:"name"`
	Group      GroupName  `json:"group"`
	Node       NodeID     `json:"node"`
	Generation int64      `json:"generation"`
	Plan       string     `json:"plan"`
	// DataUUID names the data directory of the node that has the data of a static instance.
	// Empty for others, and in records of older schedulers.
	DataUUID  string    `json:"dataUUID,omitempty"`
	Resources Resources `json:"resources"`
	// Port is the main port. 0 when the group has none.
	Port int `json:"port"`
	// Ports are the additional ports by name.
	Ports map[string]int `json:"ports,omitempty"`
	// Alone is whether the group wants the node for itself, see Where.Alone.
	Alone bool `json:"alone,omitempty"`
	// Values are placeholder values given at start.
	Values map[string]string `json:"values,omitempty"`
	// Epoch is the create-revision of the shard ownership it was written under.
	Epoch    int64     `json:"epoch"`
	PlacedAt time.Time `json:"placedAt"`
	// FromRevision is the revision of the state it was decided from; 0 when that is not known.
	FromRevision int64 `json:"fromRevision,omitempty"`
	// Score explains the choice: the winner's parts, rounded.
	Score Scores `json:"score,omitempty"`
}

// On reports whether the node is the one that the placement names: it was not deleted since
// to let another data directory join under its id.
func (p *Placement) On(n *Node) bool {
	return n.ID == p.Node && (p.DataUUID == "" || p.DataUUID == n.DataUUID)
}

// Order is what a placed instance shall do now. Written by the enforcer; the
// agent obeys it when its generation is the current one.
type Order struct {
	Rev
	Instance   InstanceID  `json:"instance"`
	Node       NodeID      `json:"node"`
	Generation int64       `json:"generation"`
	Action     OrderAction `json:"action"`
	By         string      `json:"by,omitempty"`
	Reason     Reason      `json:"reason"`
	Message    string      `json:"message,omitempty"`
	At         time.Time   `json:"at"`
}

// OrderAction is what is ordered.
type OrderAction string

// The orders.
const (
	OrderStop OrderAction = "stop" // the stop sequence of the plan
	OrderKill OrderAction = "kill" // everything the instance started, at once
)

// Pending says why an instance has no placement. Written by the scheduler when
// the reason changes, removed in the placement's transaction.
type Pending struct {
	Rev
	Instance   InstanceID `json:"instance"`
	Generation int64      `json:"generation"`
	Reason     Reason     `json:"reason"`
	Message    string     `json:"message"`
	// Lost counts, per filter, the nodes it excluded and what would make one fit; most excluding first.
	Lost []FilterLoss `json:"lost,omitempty"`
	// Nodes is how many nodes were looked at.
	Nodes int       `json:"nodes"`
	At    time.Time `json:"at"`
	// FromRevision is the revision of the state it was decided from; 0 when that is not known.
	FromRevision int64 `json:"fromRevision,omitempty"`
}

// FilterLoss is the number of nodes a filter excluded.
type FilterLoss struct {
	Filter string `json:"filter"`
	Nodes  int    `json:"nodes"`
	// Fix says what would make the nearest of them fit.
	Fix string `json:"fix,omitempty"`
}

// Status is what an agent saw of one generation of an instance. Written by the
// agent under its session's fence; by the enforcer only for nodes without a session.
type Status struct {
	Rev
	Instance   InstanceID `json:"instance"`
	Group      GroupName  `json:"group"`
	Node       NodeID     `json:"node"`
	Generation int64      `json:"generation"`
	// Epoch is the create-revision of the node session it was written under.
	Epoch   int64  `json:"epoch"`
	State   State  `json:"state"`
	Reason  Reason `json:"reason"`
	Message string `json:"message,omitempty"`
	// PID is the server's own process id, not a launcher's. 0 when none runs.
	PID int `json:"pid,omitempty"`
	// Restarts counts in-place restarts of this generation.
	Restarts int `json:"restarts,omitempty"`
	// Crashes are when runs before the last one crashed, oldest first, if that is why it was
	// not started in place once more.
	Crashes []time.Time `json:"crashes,omitempty"`
	// Exit is set in terminal states that followed a process.
	Exit *Exit `json:"exit,omitempty"`
	// HostAddress is the advertised address, placeholders resolved.
	HostAddress string    `json:"hostAddress,omitempty"`
	StartedAt   time.Time `json:"startedAt,omitzero"`
	OnlineAt    time.Time `json:"onlineAt,omitzero"`
	FinishedAt  time.Time `json:"finishedAt,omitzero"`
	ChangedAt   time.Time `json:"changedAt"`
	// TokenHash is the SHA-256 of the instance's own token, hex.
	TokenHash string `json:"tokenHash,omitempty"`
}

// Exit is how a process ended.
type Exit struct {
	// Code is the exit code; 128+n after signal n. Meaningless when Known is false.
	Code int `json:"code"`
	// Signal names the signal that ended it, "KILL"; empty when it exited by itself.
	Signal string `json:"signal,omitempty"`
	// Known is false when the process went while nobody could see how.
	Known bool `json:"known"`
	// OOM is true when the kernel killed it for memory.
	OOM bool `json:"oom,omitempty"`
	// LimitMiB is the memory limit it was killed at; 0 when the host itself had none left.
	LimitMiB int `json:"limitMiB,omitempty"`
	// Hangup is true when it ended after its terminal had gone: somebody closed the
	// session, or the terminal multiplexer died.
	Hangup bool `json:"hangup,omitempty"`
}
