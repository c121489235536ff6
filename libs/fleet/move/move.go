// Package move has the records of moves: a static instance goes to another node together with its
// data.
//
// # Where the data is
//
// Until the instance is placed on the target, the data of the source counts, and the instance may
// start only there. When the copy is verified, the enforcer sets fleet.Intent.MovesTo. From then on
// the scheduler places the instance on the target only. Each of these writes compares the intent, so
// the instance can start on one node only, whichever process dies in between.
package move

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// The bounds of moves.
const (
	// DefaultDeadlineSeconds is how long the players of an instance have by default to leave before
	// it is stopped. MaxDeadlineSeconds is the longest time.
	DefaultDeadlineSeconds, MaxDeadlineSeconds = 60, 24 * 3600
	// MaxMessage bounds Move.Message, in characters.
	MaxMessage = 256
	// MaxFiles bounds the files and directories of an instance that moves.
	MaxFiles = 500_000
	// StallFor is how long a copy may make no progress before the move fails.
	StallFor = 15 * time.Minute
	// PlaceFor is how long an instance may wait for its place on the target before the move fails.
	PlaceFor = 5 * time.Minute
	// StartFor is how long an instance may take on the target to become ONLINE before the move ends
	// without waiting for that.
	StartFor = time.Hour
	// KeepFor is how long a node keeps a copy that is no longer used.
	KeepFor = 24 * time.Hour
)

// Step is how far a move is.
type Step string

// The steps, in order. Each of the last three may be the last.
const (
	Stopping Step = "STOPPING" // the instance is stopped on the source
	Copying  Step = "COPYING"  // the target copies and verifies its directory
	Starting Step = "STARTING" // it is placed and started on the target
	Done     Step = "DONE"     // the target has the data; the source sets its copy aside
	Canceled Step = "CANCELED" // a user cancelled the move; the source has the data
	Failed   Step = "FAILED"   // the move was not possible; the source has the data
)

// Final reports whether the move is over.
func (s Step) Final() bool { return s == Done || s == Canceled || s == Failed }

// Move is the latest move of an instance. The gateway creates and cancels it, the enforcer does the
// rest; both compare its revision. The agents of both nodes act on Step. The record is replaced by
// the next move and removed with the instance.
type Move struct {
	record.Rev
	ID       string           `json:"id"`
	Instance fleet.InstanceID `json:"instance"`
	Name     string           `json:"name"`
	Group    fleet.GroupName  `json:"group"`
	// Source and Target are the nodes, SourceUUID and TargetUUID their data directories.
	Source     fleet.NodeID `json:"source"`
	SourceUUID string       `json:"sourceUuid"`
	Target     fleet.NodeID `json:"target"`
	TargetUUID string       `json:"targetUuid"`
	// Generation is the latest generation on the source. Later ones are on the target.
	Generation int64 `json:"generation"`
	// DeadlineSeconds is how long players have to leave. 0 stops the instance at once.
	DeadlineSeconds int `json:"deadlineSeconds"`
	// Message is a text of the user for the players and the records.
	Message string    `json:"message,omitempty"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	// Drain is the drain that the move is a part of, empty for other moves.
	Drain  string    `json:"drain,omitempty"`
	Step   Step      `json:"step"`
	StepAt time.Time `json:"stepAt"`
	// CancelBy is the user who cancelled the move, empty for none. The enforcer then ends it.
	CancelBy string `json:"cancelBy,omitempty"`
	// Reason and Detail say why the move failed or how it ended.
	Reason fleet.Reason `json:"reason,omitempty"`
	Detail string       `json:"detail,omitempty"`
	// Bytes and Files were copied. They are known from Starting on.
	Bytes int64 `json:"bytes,omitempty"`
	Files int   `json:"files,omitempty"`
	// Shared is true if both nodes use the same directory. Then nothing was copied, and the source
	// does not set its copy aside.
	Shared bool `json:"shared,omitempty"`
}

// Active reports whether the move is not over. m may be nil.
func (m *Move) Active() bool { return m != nil && !m.Step.Final() }

// Placed reports whether the instance was placed on the target after the copy.
func (m *Move) Placed(i *fleet.Instance) bool {
	return i.Placement != nil && i.Placement.Generation > m.Generation
}

// CopyState is how far a copy is.
type CopyState string

// The states of a copy.
const (
	Listing  CopyState = "LISTING"  // the source lists and hashes the files
	Fetching CopyState = "FETCHING" // the target fetches and verifies them
	Verified CopyState = "VERIFIED" // the directory is complete on the target
	Broken   CopyState = "FAILED"   // the directory cannot be copied
)

// Copy is what the agent of the target reports about the copy of a move. Only that agent writes it,
// under the fence of its session.
type Copy struct {
	record.Rev
	// Move is the ID of the move.
	Move     string           `json:"move"`
	Instance fleet.InstanceID `json:"instance"`
	Node     fleet.NodeID     `json:"node"`
	DataUUID string           `json:"dataUuid"`
	State    CopyState        `json:"state"`
	// BytesDone and FilesDone are what the target has verified, of BytesTotal and FilesTotal. While
	// the state is LISTING, the totals grow.
	BytesDone  int64 `json:"bytesDone"`
	BytesTotal int64 `json:"bytesTotal"`
	FilesDone  int   `json:"filesDone"`
	FilesTotal int   `json:"filesTotal"`
	// Shared is true if the source's directory is also the target's.
	Shared bool `json:"shared,omitempty"`
	// Reason and Message say why the copy failed, or waits. Message may also say what the copy does now.
	Reason  fleet.Reason `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	// At is when the copy made its latest progress, or waited for its turn last.
	At time.Time `json:"at"`
}

// Of returns the copy if it belongs to a move, else nil. c may be nil.
func (c *Copy) Of(m *Move) *Copy {
	if c == nil || m == nil || c.Move != m.ID || c.Node != m.Target || c.DataUUID != m.TargetUUID {
		return nil
	}
	return c
}
