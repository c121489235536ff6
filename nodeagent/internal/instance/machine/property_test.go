package machine_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/sleep"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

// maxTries is how often a start may fail in a row.
const maxTries = 3

// world performs effects like an agent and an operating system, but at any time and with any
// outcome.
type world struct {
	t       *rapid.T
	state   machine.State
	now     time.Time
	process int // run of the living process, 0 when none lives
	helper  machine.Effect
	// written is the generation of the last process since its directory was prepared.
	written int64
}

func (w *world) step(e machine.Event) {
	before := w.state
	snapshot, err := json.Marshal(before)
	if err != nil {
		w.t.Fatal(err)
	}
	after, effects := machine.Step(before, e, w.now)
	if again, _ := json.Marshal(before); string(again) != string(snapshot) {
		w.t.Fatalf("%T changed the state it was given", e)
	}
	w.state = after
	w.check(before, e)
	for _, f := range effects {
		w.perform(f)
		if _, ok := f.(machine.Prepare); ok {
			w.checkPrepare(e)
		}
	}
}

// checkPrepare fails if a directory with a server's data is prepared again without need.
func (w *world) checkPrepare(e machine.Event) {
	lost, _ := e.(machine.Lost)
	if w.written == w.state.Placement.Generation && !lost.Rebooted && w.state.TokenHash != "" {
		w.t.Fatalf("%T has the directory of a server that ran prepared again", e)
	}
	w.written = 0
}

func (w *world) check(before machine.State, e machine.Event) {
	was, is := before.Status, w.state.Status
	if is.Generation < was.Generation {
		w.t.Fatalf("%T lowered the generation", e)
	}
	if _, cut := e.(machine.Expiring); cut && w.state.Plan.Exclusive() {
		switch w.state.Phase {
		case machine.Stopping, machine.Ended, machine.Asleep, machine.AwaitingSession, "":
		default:
			w.t.Fatalf("an exclusive instance is %s though its session expires", w.state.Phase)
		}
	}
	if is.Generation == was.Generation && before.Phase == machine.Ended {
		if w.state.Phase != machine.Ended || !reflect.DeepEqual(was, is) {
			w.t.Fatalf("%T changed what has ended: %+v", e, is)
		}
	}
	if is.Generation > was.Generation && was.Generation > 0 && (before.Alive && w.process != 0) {
		w.t.Fatalf("%T began a generation beside a living process", e)
	}
	if w.state.Phase == machine.Ended && w.process != 0 {
		w.t.Fatalf("%T ended the instance beside a living process", e)
	}
	if w.state.Phase == machine.Asleep != (is.State == fleet.Sleeping) || w.state.Phase == machine.Asleep && w.process != 0 {
		w.t.Fatalf("phase %s shows %s, process %d", w.state.Phase, is.State, w.process)
	}
	if w.state.Tries >= maxTries && w.state.Phase == machine.Waiting {
		w.t.Fatalf("%T has a start tried after %d failures in a row", e, w.state.Tries)
	}
	if w.state.Phase == machine.Ended != is.State.Terminal() && w.state.Phase != machine.Unconfirmed && w.state.Phase != "" {
		w.t.Fatalf("phase %s shows %s", w.state.Phase, is.State)
	}
	if is.Generation == was.Generation && was.State != "" && was.State != is.State && !was.State.CanBecome(is.State) &&
		before.Phase != machine.Unconfirmed {
		w.t.Fatalf("%T made %s of %s", e, is.State, was.State)
	}
}

func (w *world) perform(f machine.Effect) {
	switch f.(type) {
	case machine.Prepare, machine.Launch, machine.Adopt:
		if w.helper != nil {
			w.t.Fatalf("%T while %T is under way", f, w.helper)
		}
		w.helper = f
	case machine.Stop, machine.Kill, machine.AwaitReady, machine.Watch:
		if w.process == 0 {
			w.t.Fatalf("%T without a process", f)
		}
	case machine.Clear, machine.Forget:
		if w.process != 0 {
			w.t.Fatalf("%T under a living process", f)
		}
	}
	if _, ok := f.(machine.Launch); ok && (w.process != 0 || w.state.Unbuilt) {
		w.t.Fatalf("a launch beside process %d, of a directory that is not built: %v", w.process, w.state.Unbuilt)
	}
}

func (w *world) answer(t *rapid.T) {
	helper := w.helper
	if helper == nil {
		return
	}
	w.helper = nil
	good := rapid.Bool().Draw(t, "good")
	switch h := helper.(type) {
	case machine.Prepare:
		if good {
			w.step(machine.Prepared{Run: h.Run, Plan: drawPlan(t), TokenHash: rapid.SampledFrom([]string{"", "hash"}).Draw(t, "hash")})
			return
		}
		w.step(machine.Failed{Run: h.Run, Reason: fleet.ReasonPrepareFailed})
	case machine.Launch:
		if good {
			w.process, w.written = h.Run, w.state.Placement.Generation
			w.step(machine.Started{Run: h.Run, PID: 1, At: w.now})
			return
		}
		if w.state.Plan.Exclusive() && rapid.Bool().Draw(t, "withheld") {
			w.step(machine.NoSession(h))
			return
		}
		w.step(machine.Failed{Run: h.Run, Reason: fleet.ReasonStartFailed})
	case machine.Adopt:
		switch {
		case w.process != 0:
			w.step(machine.Found{Run: h.Run, PID: 1})
		case good:
			w.step(machine.Exited{Run: h.Run, Exit: drawExit(t), At: w.now, Expired: w.drawExpired(t)})
		default:
			w.step(machine.Lost{Run: h.Run, Rebooted: rapid.Bool().Draw(t, "rebooted"), Expired: w.drawExpired(t)})
		}
	}
}

func drawPlan(t *rapid.T) fleet.Plan {
	return fleet.Plan{
		Static:                rapid.Bool().Draw(t, "static"),
		OnNodeLoss:            rapid.SampledFrom([]fleet.OnNodeLoss{fleet.NodeLossReplace, fleet.NodeLossWait}).Draw(t, "onNodeLoss"),
		OnCrash:               rapid.SampledFrom([]fleet.OnCrash{fleet.CrashReplace, fleet.CrashRestart, fleet.CrashStop}).Draw(t, "onCrash"),
		Readiness:             fleet.Check{Type: rapid.SampledFrom([]fleet.CheckType{fleet.CheckNone, fleet.CheckPort}).Draw(t, "readiness")},
		StartupTimeoutSeconds: rapid.IntRange(0, 60).Draw(t, "timeout"),
		MaxLifetimeSeconds:    rapid.IntRange(0, 60).Draw(t, "lifetime"),
		Liveness: fleet.Liveness{
			Check: fleet.Check{Type: rapid.SampledFrom([]fleet.CheckType{fleet.CheckNone, fleet.CheckPort}).Draw(t, "liveness")},
			Then:  rapid.SampledFrom([]fleet.OnUnhealthy{"", fleet.UnhealthyReport}).Draw(t, "then"),
		},
	}
}

func (w *world) drawExpired(t *rapid.T) bool {
	return w.state.Plan.Exclusive() && rapid.Bool().Draw(t, "expired")
}

func drawExit(t *rapid.T) fleet.Exit {
	return fleet.Exit{Known: rapid.Bool().Draw(t, "known"), Code: rapid.IntRange(0, 2).Draw(t, "code")}
}

func TestInvariantsHoldForAnyEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: epoch}
		run := func(t *rapid.T) int { return w.state.Run - rapid.IntRange(0, 1).Draw(t, "stale") }
		t.Repeat(map[string]func(*rapid.T){
			"placed": func(t *rapid.T) {
				w.step(placed(rapid.Int64Range(1, 5).Draw(t, "generation")))
			},
			"ordered": func(t *rapid.T) {
				action := rapid.SampledFrom([]fleet.OrderAction{fleet.OrderStop, fleet.OrderKill, fleet.OrderSleep}).Draw(t, "action")
				w.step(order(rapid.Int64Range(1, 5).Draw(t, "generation"), action))
			},
			"answer":  w.answer,
			"delayed": func(t *rapid.T) { w.step(machine.Delayed{Run: run(t)}) },
			"ready":   func(t *rapid.T) { w.step(machine.Ready{Run: run(t)}) },
			"health": func(t *rapid.T) {
				w.step(rapid.SampledFrom([]machine.Event{
					machine.Unhealthy{Run: run(t)}, machine.Healthy{Run: run(t)}, machine.DiskExceeded{Run: run(t)},
				}).Draw(t, "health"))
			},
			"exit": func(t *rapid.T) {
				if w.process == 0 || w.helper != nil {
					return
				}
				gone := w.process
				w.process = 0
				w.step(machine.Exited{Run: gone, Exit: drawExit(t), At: w.now, Expired: w.drawExpired(t)})
			},
			"late exit": func(t *rapid.T) { w.step(machine.Exited{Run: w.state.Run - 1, At: w.now}) },
			"timer": func(t *rapid.T) {
				timer := rapid.SampledFrom([]machine.Timer{machine.StartTimer, machine.RestartTimer, machine.LifetimeTimer}).Draw(t, "timer")
				w.step(machine.Elapsed{Run: run(t), Timer: timer})
			},
			"restarted agent": func(t *rapid.T) {
				if _, launching := w.helper.(machine.Launch); launching && rapid.Bool().Draw(t, "launched") {
					w.process, w.written = w.state.Run, w.state.Placement.Generation
				}
				w.helper = nil
				if w.process != 0 && rapid.Bool().Draw(t, "died meanwhile") {
					w.process = 0
				}
				w.step(machine.Recovered{})
			},
			"queued": func(t *rapid.T) {
				w.step(machine.Queued{Run: run(t), Message: rapid.SampledFrom([]string{"", "wait"}).Draw(t, "why")})
			},
			"settled":    func(*rapid.T) { w.step(machine.StatusWritten{Generation: w.state.Status.Generation}) },
			"unsettled":  func(*rapid.T) { w.step(machine.StatusUnwritten{Generation: w.state.Status.Generation}) },
			"superseded": func(*rapid.T) { w.step(machine.Superseded{Generation: w.state.Status.Generation}) },
			"shutdown":   func(*rapid.T) { w.step(machine.Shutdown{}) },
			"stopped locally": func(t *rapid.T) {
				w.step(machine.StoppedLocally{Force: rapid.Bool().Draw(t, "force"), By: "root"})
			},
			"expiring":  func(t *rapid.T) { w.step(machine.Expiring{Force: rapid.Bool().Draw(t, "force")}) },
			"admitted":  func(t *rapid.T) { w.step(machine.SessionReady{Run: run(t)}) },
			"unguarded": func(t *rapid.T) { w.step(machine.GuardLost{Run: run(t)}) },
			"called":    func(*rapid.T) { w.step(machine.Called{Call: sleep.Call{At: w.now}}) },
			"removed":   func(*rapid.T) { w.step(machine.Removed{}) },
			"time": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
			},
		})
	})
}
