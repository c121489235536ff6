package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// MaxUnrecorded bounds State.Unrecorded; the oldest go first.
const MaxUnrecorded = 8

// atOnce is how soon after its start a command that cannot be run has ended: a shell
// that says so later had run something before.
const atOnce = 5 * time.Second

// unrecorded notes an end that nobody asked for, until somebody has written down what
// is to be read of it.
func (t *step) unrecorded(v verdict, exit fleet.Exit, at time.Time) {
	p := t.Placement
	t.Unrecorded = append(slices.Clone(t.Unrecorded), fleet.Crash{
		ID: fleet.CrashID(p.Instance, p.Generation, t.Run), Instance: p.Instance, Name: p.Name, Group: p.Group,
		GroupRevision: t.Plan.GroupRevision, Node: p.Node, Generation: p.Generation,
		Reason: v.reason, Message: v.message, Exit: &exit, StartedAt: t.Status.StartedAt, At: t.dated(at),
	})
	t.Unrecorded = t.Unrecorded[max(0, len(t.Unrecorded)-MaxUnrecorded):]
}

// recorded forgets an end that was written down.
func (t *step) recorded(e Recorded) {
	t.Unrecorded = slices.DeleteFunc(slices.Clone(t.Unrecorded), func(c fleet.Crash) bool { return c.ID == e.ID })
	if len(t.Unrecorded) == 0 {
		t.Unrecorded = nil
	}
}

// endOf is what the end of a process means that nobody asked to end.
func (t *step) endOf(exit fleet.Exit, rebooted bool, refused *Refusal, at time.Time) verdict {
	soon := t.ran > 0 && t.ran < atOnce || t.ran == 0 && at.Sub(t.Status.StartedAt).Abs() < atOnce
	if refused == nil || rebooted || !soon {
		return judge(exit, rebooted)
	}
	return verdict{fleet.Failed, refused.Reason, fmt.Sprintf("%s (exit code %d)", refused.Message, exit.Code)}
}
