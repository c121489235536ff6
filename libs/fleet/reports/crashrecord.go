package reports

import (
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// CrashCategory classifies a crash by the server's output and the way it ended.
type CrashCategory string

// The categories.
const (
	CrashOutOfMemory   CrashCategory = "OOM"               // the server or the kernel reported out of memory
	CrashStackOverflow CrashCategory = "STACK_OVERFLOW"    // endless recursion
	CrashClassNotFound CrashCategory = "CLASS_NOT_FOUND"   // a part of the program is missing
	CrashPortBind      CrashCategory = "PORT_BIND_FAILURE" // another program uses its port
	CrashStartTimeout  CrashCategory = "START_TIMEOUT"     // it was not ready in time
	CrashUnhealthy     CrashCategory = "UNHEALTHY"         // it failed its liveness check
	CrashClean         CrashCategory = "CLEAN"             // code 0
	CrashGeneral       CrashCategory = "GENERAL_ERROR"     // code 1
	CrashInterrupted   CrashCategory = "SIGINT"
	CrashAborted       CrashCategory = "SIGABRT"
	CrashKilled        CrashCategory = "SIGKILL"
	CrashSegfault      CrashCategory = "SIGSEGV"
	CrashTerminated    CrashCategory = "SIGTERM"
	CrashUnknown       CrashCategory = "UNKNOWN" // none of these
)

// CrashCategories lists every category.
var CrashCategories = [...]CrashCategory{
	CrashOutOfMemory, CrashStackOverflow, CrashClassNotFound, CrashPortBind, CrashStartTimeout, CrashUnhealthy, CrashClean,
	CrashGeneral, CrashInterrupted, CrashAborted, CrashKilled, CrashSegfault, CrashTerminated, CrashUnknown,
}

// Crash is the record of an unexpected end. The agent writes it once. The enforcer removes it when
// it is old or there are too many.
type Crash struct {
	record.Rev
	// ID identifies the run that crashed. Repeated reports of the same run have the same ID.
	ID            string           `json:"id"`
	Instance      fleet.InstanceID `json:"instance"`
	Name          string           `json:"name"`
	Group         fleet.GroupName  `json:"group"`
	GroupRevision int64            `json:"groupRevision"`
	Node          fleet.NodeID     `json:"node"`
	Generation    int64            `json:"generation"`

	Reason fleet.Reason `json:"reason"`
	// Message explains the reason. It may be empty.
	Message  string        `json:"message,omitempty"`
	Exit     *fleet.Exit   `json:"exit,omitempty"`
	Category CrashCategory `json:"category"`
	// Cause is the output line that explains the crash best, at most MaxCause bytes. It may be
	// empty.
	Cause string `json:"cause,omitempty"`
	// Fingerprint is equal for equal causes: 16 hexadecimal digits.
	Fingerprint string `json:"fingerprint"`
	// Last is the end of the output, oldest line first, for notifications about the crash; see
	// LastLines. The CrashTail has more.
	Last      []string  `json:"last,omitempty"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	At        time.Time `json:"at"`
}

// MaxCause bounds Crash.Cause, in bytes.
const MaxCause = 200

// CauseKilled is the Cause of a process that was ended by a SIGKILL the agent did not send. The
// log cannot show why.
const CauseKilled = "killed by the kernel or another program; see journalctl -k on its node"

// CrashID returns the ID of a crash. The agent numbers the runs of a generation.
func CrashID(i fleet.InstanceID, generation int64, run int) string {
	return fmt.Sprintf("%s-%d-%d", i, generation, run)
}

// Ran returns how long the run lasted, 0 if unknown.
func (c *Crash) Ran() time.Duration {
	if c.StartedAt.IsZero() {
		return 0
	}
	return max(0, c.At.Sub(c.StartedAt))
}
