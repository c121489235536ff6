package machine

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Phase is where the current generation stands.
type Phase string

// The phases. Empty: nothing was placed yet.
const (
	Preparing Phase = "preparing"
	Launching Phase = "launching"
	Starting  Phase = "starting"
	Online    Phase = "online"
	Waiting   Phase = "waiting"
	Doubtful  Phase = "doubtful" // crashed; whether the store knows is open
	Barred    Phase = "barred"   // exclusive, and the node has no session
	Stopping  Phase = "stopping"
	Ended     Phase = "ended"
)

// Helper is the one task that may be under way for an instance.
type Helper string

// The helpers. Empty: none is out.
const (
	Preparer Helper = "prepare"
	Launcher Helper = "launch"
	Adopter  Helper = "adopt"
)

// State is all that is known of an instance. It is a value that survives the
// agent in its journal; Step never changes what an earlier State refers to.
type State struct {
	Phase     Phase           `json:"phase"`
	Placement fleet.Placement `json:"placement"`
	// Plan is the generation's plan, from Prepared on.
	Plan fleet.Plan `json:"plan"`
	// Run numbers preparations and processes; it never repeats.
	Run int `json:"run"`
	// Out is the helper that has not answered yet.
	Out Helper `json:"out,omitempty"`
	// Alive is true while a process may exist.
	Alive bool `json:"alive,omitempty"`
	// Order is the order the generation is under, Early one that came before its placement.
	Order *fleet.Order `json:"order,omitempty"`
	Early *fleet.Order `json:"early,omitempty"`
	// Next is a higher generation that waits for this one's end.
	Next *fleet.Placement `json:"next,omitempty"`
	// Halt says why the generation is stopping.
	Halt *Halt `json:"halt,omitempty"`
	// Verdict is, of a Doubtful one, a sentence about its crash.
	Verdict string `json:"verdict,omitempty"`
	// Tries is how many starts failed in a row for a cause that may pass.
	Tries int `json:"tries,omitempty"`
	// Unbuilt is true from Prepare until Prepared.
	Unbuilt bool `json:"unbuilt,omitempty"`
	// Level is how many crashes in a row a pause followed; Crashes are those within CrashWindow.
	Level   int         `json:"level,omitempty"`
	Crashes []time.Time `json:"crashes,omitempty"`
	// ResumeAt is when the next run in place is due.
	ResumeAt time.Time `json:"resumeAt,omitzero"`
	// TokenHash is the SHA-256 of the generation's token, hex.
	TokenHash string `json:"tokenHash,omitempty"`
	// Notes is what preparing found worth telling.
	Notes string `json:"notes,omitempty"`
	// Orphan is true when the placement's record is gone.
	Orphan bool `json:"orphan,omitempty"`
	// Closing is true when the agent takes its instances along.
	Closing bool `json:"closing,omitempty"`
	// Unrecorded are the ends nobody asked for that are not written down yet, oldest
	// first, at most MaxUnrecorded, of earlier generations too.
	Unrecorded []fleet.Crash `json:"unrecorded,omitempty"`
	// Status is what the store shall show.
	Status fleet.Status `json:"status"`
}

// Halt is why a generation is being stopped and what it will be called then.
type Halt struct {
	Force   bool         `json:"force,omitempty"`
	State   fleet.State  `json:"state"`
	Reason  fleet.Reason `json:"reason"`
	Message string       `json:"message,omitempty"`
	// Crash is set when its end is one that nobody asked for: what the plan says of
	// crashes follows, State being CRASHED.
	Crash bool `json:"crash,omitempty"`
}

// In-place restarts: the first crash within CrashWindow, of a run that was ready, is
// followed by another run at once. The pause after others doubles from firstPause to
// maxPause with each in a row. GiveUp crashes within CrashWindow end the generation as
// CRASHED. A run longer than stable starts the count again.
const (
	firstPause  = time.Second
	maxPause    = time.Minute
	GiveUp      = 3
	CrashWindow = 5 * time.Minute
	stable      = 10 * time.Minute
)

// maxTries is how often a start is tried whose failure may pass.
const maxTries = 3

// transient reports whether what a start failed for may be gone a second later.
func (e Failed) transient() bool {
	switch e.Reason {
	case fleet.ReasonTemplateFetch, fleet.ReasonArtifactFetch, fleet.ReasonImageFetch, fleet.ReasonPrepareFailed, fleet.ReasonStartFailed:
		return true
	}
	return e.Away
}

// readyAgain is how long an adopted process may show that it is ready, whatever is
// left of its time by a clock that may have been set.
const readyAgain = 10 * time.Second

// pause is the time before the run after the level-th crash in a row that a pause follows.
func pause(level int) time.Duration {
	return min(firstPause<<min(max(level-1, 0), 10), maxPause)
}
