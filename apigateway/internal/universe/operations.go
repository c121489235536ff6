package universe

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Operations are the changes of the fleet this dialect asks for. Each returns
// when the view shows what it did. by is the user who asks.
type Operations interface {
	// PutGroup creates or replaces a group with the spec that make computes from the
	// present one (nil when there is none).
	PutGroup(ctx context.Context, by string, name fleet.GroupName, make func(old *fleet.GroupSpec) (fleet.GroupSpec, error)) error
	// DeleteGroup marks a group for removal. NotFound when there is none.
	DeleteGroup(ctx context.Context, by string, name fleet.GroupName) error
	// CreateInstance asks for one more instance. NotFound for an unknown group,
	// Exhausted when no node could ever hold it.
	CreateInstance(ctx context.Context, by string, group fleet.GroupName) (fleet.InstanceID, error)
	// StopInstance asks an instance to stop; it may have stopped already.
	StopInstance(ctx context.Context, by string, id fleet.InstanceID) error
	// StartInstance runs a stopped instance again; it may run already.
	StartInstance(ctx context.Context, by string, id fleet.InstanceID) error
	// RestartInstance stops an instance and runs it again.
	RestartInstance(ctx context.Context, by string, id fleet.InstanceID) error
}

// Agents carry words to and from a running instance through its node's agent.
// Unavailable when the agent does not answer.
type Agents interface {
	// Command writes a line to the instance's console. Conflict when it does not run.
	Command(ctx context.Context, i *fleet.Instance, line string) error
	// Tail is the last lines of the instance's output and how many it has in all.
	Tail(ctx context.Context, i *fleet.Instance, lines int) (tail []string, total int64, err error)
	// Heartbeat hands over what the instance says of itself.
	Heartbeat(ctx context.Context, i *fleet.Instance, h Heartbeat) error
}

// Heartbeat is what an instance says of itself.
type Heartbeat struct {
	// State is the state it claims, in this dialect's words. A claim, not an order:
	// the agent knows better whether the process lives.
	State string
	// At is when it says so; zero means now.
	At time.Time
	// Players, MaxPlayers and TPS are nil where it did not say.
	Players, MaxPlayers *int
	TPS                 *float64
}
