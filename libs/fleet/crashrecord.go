package fleet

import (
	"fmt"
	"time"
)

// CrashCategory is what kind of failure a crash was, as far as what the server printed
// and how it ended tell.
type CrashCategory string

// The categories.
const (
	CrashOutOfMemory   CrashCategory = "OOM"               // out of memory, by its own words or the kernel's
	CrashStackOverflow CrashCategory = "STACK_OVERFLOW"    // calls without end
	CrashClassNotFound CrashCategory = "CLASS_NOT_FOUND"   // a part of the program is missing
	CrashPortBind      CrashCategory = "PORT_BIND_FAILURE" // its port is somebody else's
	CrashStartTimeout  CrashCategory = "START_TIMEOUT"     // it was not ready in time
	CrashUnhealthy     CrashCategory = "UNHEALTHY"         // it ran and served no more
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

// Crash is one end that nobody asked for. The agent writes it, once; the enforcer
// removes it when it is old or there are too many.
type Crash struct {
	Rev
	// ID tells the crashes of one instance apart: the same run has the same, however
	// often it is reported.
	ID            string     `json:"id"`
	Instance      InstanceID `json:"instance"`
	Name          string     `json:"name"`
	Group         GroupName  `json:"group"`
	GroupRevision int64      `json:"groupRevision"`
	Node          NodeID     `json:"node"`
	Generation    int64      `json:"generation"`

	Reason Reason `json:"reason"`
	// Message says more than the reason; empty when there is nothing more to say.
	Message  string        `json:"message,omitempty"`
	Exit     *Exit         `json:"exit,omitempty"`
	Category CrashCategory `json:"category"`
	// Cause is the line that says it best, at most MaxCause bytes; empty when it said nothing.
	Cause string `json:"cause,omitempty"`
	// Fingerprint is the same for equal causes: 16 hexadecimal digits.
	Fingerprint string `json:"fingerprint"`
	// Last is the end of what was printed, oldest line first, for those who are told of the
	// crash; see LastLines. The CrashTail has more.
	Last      []string  `json:"last,omitempty"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	At        time.Time `json:"at"`
}

// MaxCause bounds Crash.Cause, in bytes.
const MaxCause = 200

// CauseKilled is the Crash.Cause of a process that SIGKILL ended and the agent did not: its
// log cannot say why.
const CauseKilled = "killed from outside, or by the kernel; see journalctl -k on its node"

// CrashID names the end of one run of an instance. Runs are numbered by the agent.
func CrashID(i InstanceID, generation int64, run int) string {
	return fmt.Sprintf("%s-%d-%d", i, generation, run)
}

// Ran is how long the run lasted; 0 when that is not known.
func (c *Crash) Ran() time.Duration {
	if c.StartedAt.IsZero() {
		return 0
	}
	return max(0, c.At.Sub(c.StartedAt))
}
