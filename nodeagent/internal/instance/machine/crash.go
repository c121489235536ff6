package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

// MaxUnrecorded bounds State.Unrecorded; the oldest are dropped.
const MaxUnrecorded = 8

// refusalWindow is how soon after its start a shell reports that it cannot run a command. A later
// report concerns another command of the script.
const refusalWindow = 5 * time.Second

// addUnrecorded adds an unrequested end to Unrecorded.
func (t *step) addUnrecorded(v verdict, exit fleet.Exit, at time.Time) {
	p := t.Placement
	t.Unrecorded = append(slices.Clone(t.Unrecorded), reports.Crash{
		ID: reports.CrashID(p.Instance, p.Generation, t.Run), Instance: p.Instance, Name: p.Name, Group: p.Group,
		GroupRevision: t.Plan.GroupRevision, Node: p.Node, Generation: p.Generation,
		Reason: v.reason, Message: v.message, Exit: &exit, StartedAt: t.Status.StartedAt, At: t.endTime(at),
	})
	t.Unrecorded = t.Unrecorded[max(0, len(t.Unrecorded)-MaxUnrecorded):]
}

// recorded removes an end that is recorded.
func (t *step) recorded(e Recorded) {
	t.Unrecorded = slices.DeleteFunc(slices.Clone(t.Unrecorded), func(c reports.Crash) bool { return c.ID == e.ID })
	if len(t.Unrecorded) == 0 {
		t.Unrecorded = nil
	}
}

// endOf is the verdict on a process that ended without a request.
func (t *step) endOf(exit fleet.Exit, rebooted bool, refused *Refusal, at time.Time) verdict {
	soon := t.ran > 0 && t.ran < refusalWindow || t.ran == 0 && at.Sub(t.Status.StartedAt).Abs() < refusalWindow
	if refused == nil || rebooted || !soon {
		return judge(exit, rebooted)
	}
	return verdict{fleet.Failed, refused.Reason, fmt.Sprintf("%s (exit code %d)", refused.Message, exit.Code)}
}
