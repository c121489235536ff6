package progress

import (
	"context"
	"errors"
	"fmt"

	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/tidwall/gjson"
)

// The states of instances, and the reasons, that the conditions look at.
const (
	running, stopped, crashed = "RUNNING", "STOPPED", "CRASHED"
	reasonSleeping            = "SLEEPING"
	reasonNodeLost            = "NODE_LOST"
	reasonRestart             = "Restart"
)

// Deleted is true once the object does not exist.
func Deleted() Condition {
	return func(_ context.Context, row output.Row) Step {
		return Step{Done: row == nil, Text: StateText(row)}
	}
}

// Matches is true once the object has the fields that a filter asks for.
func Matches(filter output.Filter) Condition {
	return Existing(func(_ context.Context, row output.Row) Step {
		return Step{Done: filter.Matches(row), Text: StateText(row)}
	})
}

// Running is true once the instance runs. It fails if the instance was stopped for good. An instance that crashed
// counts as failed if crashIsFinal, or if it is frozen: otherwise its group replaces it under the same name.
func Running(crashIsFinal bool) Condition {
	return Existing(func(_ context.Context, row output.Row) Step {
		state, reason := gjson.GetBytes(row, "state").String(), gjson.GetBytes(row, "reason").String()
		desired := gjson.GetBytes(row, "desired").String()
		switch {
		case state == running:
			return Step{Done: true}
		case state == stopped && desired == "stopped" && reason != reasonRestart && reason != reasonSleeping:
			return failed(row, "is stopped", "orrery start instance "+gjson.GetBytes(row, "id").String()+" starts it")
		case state == crashed && reason != reasonNodeLost && (crashIsFinal || desired == "stopped" || gjson.GetBytes(row, "frozen").Bool()):
			return failed(row, "crashed", explainHint(row))
		}
		return Step{Text: StateText(row)}
	})
}

// RunningSince is true once the instance runs in that generation or a later one. A crash of that generation fails.
func RunningSince(generation int64) Condition {
	current, earlier := Running(true), Running(false)
	return func(ctx context.Context, row output.Row) Step {
		if row == nil || gjson.GetBytes(row, "generation").Int() >= generation {
			return current(ctx, row)
		}
		step := earlier(ctx, row)
		step.Done = false
		return step
	}
}

// Stopped is true once the instance has ended, sleeps, or was deleted, or runs in a generation later than the given
// one; 0 means that no later generation counts.
func Stopped(generation int64) Condition {
	return func(_ context.Context, row output.Row) Step {
		if row == nil {
			return Step{Done: true}
		}
		state := gjson.GetBytes(row, "state").String()
		again := generation > 0 && gjson.GetBytes(row, "generation").Int() > generation
		ended := state == stopped || state == crashed && gjson.GetBytes(row, "reason").String() != reasonNodeLost
		return Step{Done: again || ended, Text: StateText(row)}
	}
}

// RolloutEnded is true once the deployment is complete. Any other end fails.
func RolloutEnded() Condition {
	return Existing(func(_ context.Context, row output.Row) Step {
		state := gjson.GetBytes(row, "state").String()
		text := fmt.Sprintf("%s, %d of %d instances replaced", state, gjson.GetBytes(row, "updatedInstances").Int(), gjson.GetBytes(row, "totalInstances").Int())
		if message := gjson.GetBytes(row, "message").String(); message != "" {
			text += ": " + message
		}
		switch state {
		case "COMPLETED":
			return Step{Done: true}
		case "FAILED", "ROLLED_BACK", "CANCELLED":
			err := fmt.Errorf("the rollout of group %s ended as %s", gjson.GetBytes(row, "groupName").String(), text)
			return Step{Err: exit.With(exit.Failed, err, "orrery describe deployment "+gjson.GetBytes(row, "revision").String()+
				" --group "+gjson.GetBytes(row, "groupName").String())}
		}
		return Step{Text: text}
	})
}

// Drained is true once the node's drain is complete. It fails if the node is not being drained.
func Drained() Condition {
	return Existing(func(_ context.Context, row output.Row) Step {
		drain := gjson.GetBytes(row, "drain")
		id := gjson.GetBytes(row, "id").String()
		switch {
		case !drain.Exists():
			return Step{Err: exit.With(exit.Failed, fmt.Errorf("node %s is not being drained", id), "orrery drain "+id+" drains it")}
		case drain.Get("state").String() == "COMPLETED":
			return Step{Done: true}
		}
		text := output.Counted(drain.Get("remainingInstances").Int(), "instance") + " left, with " + output.Counted(drain.Get("players").Int(), "player")
		if blocker := drain.Get("instances.#(blocks==true)"); blocker.Exists() {
			return Step{Text: text + "; blocked by " + blocker.Get("id").String() + ": " + blocker.Get("message").String()}
		}
		if next := drain.Get("instances.0"); next.Exists() {
			text += "; " + next.Get("id").String() + ": " + next.Get("outlook").String()
		}
		return Step{Text: text}
	})
}

// Online is true once the node's agent is connected and the node takes instances.
func Online() Condition {
	return Existing(func(_ context.Context, row output.Row) Step {
		return Step{Done: gjson.GetBytes(row, "status").String() == "ONLINE", Text: StateText(row)}
	})
}

// Offline is true once the node's agent is not connected.
func Offline() Condition {
	return Existing(func(_ context.Context, row output.Row) Step {
		return Step{Done: gjson.GetBytes(row, "status").String() == "OFFLINE", Text: StateText(row)}
	})
}

// GroupReady is true once as many instances of the group run as it must have. It fails while the group is paused
// after crashes or in maintenance, because then nothing starts.
func GroupReady() Condition {
	return Existing(func(_ context.Context, row output.Row) Step {
		name := gjson.GetBytes(row, "name").String()
		have, least := gjson.GetBytes(row, "runningInstances").Int(), gjson.GetBytes(row, "minInstances").Int()
		text := fmt.Sprintf("%d of %d instances run", have, least)
		switch {
		case have >= least:
			return Step{Done: true}
		case gjson.GetBytes(row, "paused").Bool():
			return Step{Err: exit.With(exit.Failed, fmt.Errorf("group %s: %s", name, gjson.GetBytes(row, "message").String()), "orrery get crashes shows why")}
		case gjson.GetBytes(row, "maintenance").Bool():
			return Step{Err: exit.With(exit.Failed, fmt.Errorf("group %s is in maintenance, so nothing starts", name), "end the maintenance first")}
		}
		return Step{Text: text}
	})
}

// Moved is true once the move of an instance is done. Another end fails.
func Moved(move string) Condition {
	return Existing(func(_ context.Context, row output.Row) Step {
		m := gjson.GetBytes(row, "move")
		id := gjson.GetBytes(row, "id").String()
		step := m.Get("step").String()
		switch {
		case !m.Exists() || m.Get("id").String() != move:
			return Step{Err: exit.With(exit.Failed, fmt.Errorf("the move of instance %s was replaced by another one", id), "orrery describe instance "+id)}
		case step == "DONE":
			return Step{Done: true}
		case step == "CANCELED" || step == "FAILED":
			return Step{Err: exit.With(exit.Failed, fmt.Errorf("the move of instance %s ended as %s: %s", id, step, m.Get("message").String()), "orrery explain instance "+id)}
		}
		text := step
		switch total := m.Get("bytesTotal").Int(); {
		case total == 0 || step != "COPYING":
		case m.Get("copyState").String() == "LISTING":
			text += fmt.Sprintf(", %s hashed", kinds.Size(total))
		default:
			text += fmt.Sprintf(", %s of %s copied", kinds.Size(m.Get("bytesDone").Int()), kinds.Size(total))
		}
		if message := m.Get("message").String(); message != "" {
			text += ": " + message
		}
		return Step{Text: text}
	})
}

// Existing fails if the object was deleted, and asks the condition otherwise.
func Existing(condition Condition) Condition {
	return func(ctx context.Context, row output.Row) Step {
		if row == nil {
			return Step{Err: errDeleted}
		}
		return condition(ctx, row)
	}
}

// failed is the Step of an instance that cannot reach the condition.
func failed(row output.Row, what, hint string) Step {
	id, message := gjson.GetBytes(row, "id").String(), gjson.GetBytes(row, "message").String()
	return Step{Err: exit.With(exit.Failed, fmt.Errorf("instance %s %s: %s", id, what, message), hint)}
}

func explainHint(row output.Row) string {
	return "orrery explain instance " + gjson.GetBytes(row, "id").String() + " says why"
}

// errDeleted is why a condition on a missing object cannot become true.
var errDeleted = errors.New("it was deleted")
