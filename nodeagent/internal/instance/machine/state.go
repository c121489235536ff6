package machine

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

// Phase is the phase of the current generation.
type Phase string

// The phases, as the journal stores them. Empty means that nothing was placed yet.
const (
	Preparing       Phase = "preparing"
	Launching       Phase = "launching"
	Starting        Phase = "starting"
	Online          Phase = "online"
	Waiting         Phase = "waiting"
	Unconfirmed     Phase = "doubtful" // crashed, and the crash may not be written to the store yet
	AwaitingSession Phase = "barred"   // exclusive, and the node has no session
	Stopping        Phase = "stopping"
	Asleep          Phase = "asleep" // without a process; the directory and the ports are kept
	Ended           Phase = "ended"
)

// Helper is the task that is pending for an instance. There is at most one.
type Helper string

// The helpers. Empty means that none is pending.
const (
	Preparer Helper = "prepare"
	Launcher Helper = "launch"
	Adopter  Helper = "adopt"
)

// State is the whole state of an instance. The journal stores it. Step never modifies what an
// earlier State refers to.
type State struct {
	Phase     Phase           `json:"phase"`
	Placement fleet.Placement `json:"placement"`
	// Plan is the generation's plan, from Prepared on.
	Plan fleet.Plan `json:"plan"`
	// Run numbers preparations and processes; it never repeats.
	Run int `json:"run"`
	// Pending is the helper that has not answered yet.
	Pending Helper `json:"out,omitempty"`
	// Alive is true while a process may exist.
	Alive bool `json:"alive,omitempty"`
	// Order is the order for this generation. Early is one for a later generation.
	Order *fleet.Order `json:"order,omitempty"`
	Early *fleet.Order `json:"early,omitempty"`
	// Next is a higher generation that begins when this one has ended.
	Next *fleet.Placement `json:"next,omitempty"`
	// Halt says why the generation is stopping.
	Halt *Halt `json:"halt,omitempty"`
	// Verdict describes the crash of an unconfirmed generation.
	Verdict string `json:"verdict,omitempty"`
	// Tries counts consecutive starts that failed for a temporary cause.
	Tries int `json:"tries,omitempty"`
	// Unbuilt is true from Prepare until Prepared.
	Unbuilt bool `json:"unbuilt,omitempty"`
	// Level counts consecutive crashes that were followed by a pause. Crashes are those within
	// CrashWindow.
	Level   int         `json:"level,omitempty"`
	Crashes []time.Time `json:"crashes,omitempty"`
	// ResumeAt is when the next run in place is due.
	ResumeAt time.Time `json:"resumeAt,omitzero"`
	// TokenHash is the hexadecimal SHA-256 of the generation's token.
	TokenHash string `json:"tokenHash,omitempty"`
	// Notes are warnings from the preparation, for the status message.
	Notes string `json:"notes,omitempty"`
	// Slept is true if an earlier generation with the same plan was asleep when this one began. The
	// directory is that one's. A restart of the host resets it, so that the directory is built again.
	Slept bool `json:"slept,omitempty"`
	// Orphan is true if the placement was deleted.
	Orphan bool `json:"orphan,omitempty"`
	// Closing is true if the agent stops its instances when it exits.
	Closing bool `json:"closing,omitempty"`
	// Unrecorded are the unrequested ends that are not recorded yet, oldest first, at most MaxUnrecorded, including those of earlier generations.
	Unrecorded []reports.Crash `json:"unrecorded,omitempty"`
	// Status is what the store shows.
	Status fleet.Status `json:"status"`
}

// Halt is why a generation stops, and its final state, reason and message.
type Halt struct {
	Force   bool         `json:"force,omitempty"`
	State   fleet.State  `json:"state"`
	Reason  fleet.Reason `json:"reason"`
	Message string       `json:"message,omitempty"`
	// Crash is set for an unrequested stop. The end is then handled like a crash, and State is
	// CRASHED.
	Crash bool `json:"crash,omitempty"`
}

// Restarts in place: the first crash within CrashWindow of a run that was ready restarts it
// at once. The pause after other crashes doubles from firstPause to maxPause with each
// consecutive crash. GiveUp crashes within CrashWindow end the generation as CRASHED. A run
// longer than stableAfter resets the pause.
const (
	firstPause  = time.Second
	maxPause    = time.Minute
	GiveUp      = 3
	CrashWindow = 5 * time.Minute
	stableAfter = 10 * time.Minute
)

// maxTries bounds the attempts of a start that fails for a temporary cause.
const maxTries = 3

// transient reports whether the cause of a failure may be temporary.
func (e Failed) transient() bool {
	switch e.Reason {
	case fleet.ReasonTemplateFetch, fleet.ReasonArtifactFetch, fleet.ReasonImageFetch, fleet.ReasonPrepareFailed, fleet.ReasonStartFailed:
		return true
	}
	return e.Away
}

// minReadyWait is the least time that an adopted process has to become ready, because the clock
// may have been set.
const minReadyWait = 10 * time.Second

// pause is the pause after the level-th consecutive crash.
func pause(level int) time.Duration {
	return min(firstPause<<min(max(level-1, 0), 10), maxPause)
}
