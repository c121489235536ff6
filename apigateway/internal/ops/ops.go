// Package ops has the operations on the fleet that all HTTP dialects share. Each resource has a
// package of its own; Operations joins them.
//
// Invariants:
//
//   - An operation checks everything before it writes. A refused operation writes nothing.
//   - An operation that loses a race decides again on a fresh snapshot, a bounded number of times.
//     With If-Match it returns a txn.MovedError instead.
//   - An operation waits for etcd for a few seconds at most; see txn.InTime.
//   - When an operation returns, the view of this gateway shows its result.
//   - The gateway writes intent only: groups, the intents, names and plans of instances, and the
//     desired state of nodes. It places no instance and starts no process.
//   - Operations on one group run one after the other within a gateway. Across gateways, the
//     comparisons of the transaction decide.
package ops

import (
	"context"
	"log/slog"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/allocationops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/appliedops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/auditops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/catalogops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/clusterops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/moveops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/nodeops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/noticeops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/scheduleops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server/settings"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Config is what operations need; all of it is required but what says otherwise.
type Config struct {
	Store  *store.Client
	View   *view.View
	Agents *upstream.Agents
	// Simulate asks a scheduler where an instance could move.
	Simulate moveops.Simulate
	// Seal has the keys that seal secrets.
	Seal *seal.Ring
	// Settings returns the current settings.
	Settings func() settings.Settings
	// EventTypes are the types of the events that notices can send.
	EventTypes []string
	// TellReset sends a user a password reset token. Nil disables password resets.
	TellReset func(ctx context.Context, u account.User, token string) error
	// Copy receives each committed audit entry with its revision. May be nil.
	Copy func(e account.AuditEntry, rev int64)
	// Pause delays a password check after earlier wrong passwords. It reports false if ctx ended first.
	// Nil means pause.For.
	Pause func(ctx context.Context, d time.Duration) bool
	Log   *slog.Logger
	Now   func() time.Time
}

// Operations has all operations on the fleet but those of Sources. It is safe for concurrent use.
type Operations struct {
	*txn.Committer
	*allocationops.Allocations
	*groupops.Groups
	*instanceops.Instances
	*moveops.Moves
	*nodeops.Nodes
	*templateops.Templates
	*catalogops.Catalog
	*accountops.Accounts
	*clusterops.Cluster
	*scheduleops.Schedules
	*noticeops.Notices
	*appliedops.Applied
	*auditops.Trail
}

// New wires the operations.
func New(cfg Config) *Operations {
	records := cfg.Seal.Records(content.SecretsKind)
	c := txn.New(txn.Deps{Store: cfg.Store, View: cfg.View, Ring: cfg.Seal, Copy: cfg.Copy, Log: cfg.Log, Now: cfg.Now})
	groups := groupops.New(c, cfg.Seal.Values(content.SecretsKind))
	instances := instanceops.New(c, groups, cfg.Agents)
	moves := moveops.New(c, cfg.Simulate)
	nodes := nodeops.New(c, cfg.Agents, moves)
	return &Operations{
		Committer:   c,
		Allocations: allocationops.New(c),
		Groups:      groups,
		Instances:   instances,
		Moves:       moves,
		Nodes:       nodes,
		Templates:   templateops.New(c, cfg.Agents),
		Catalog:     catalogops.New(c),
		Accounts:    accountops.New(c, accountops.Deps{Settings: cfg.Settings, Seal: records, TellReset: cfg.TellReset, Pause: cfg.Pause}),
		Cluster:     clusterops.New(c, cfg.Seal),
		Schedules:   scheduleops.New(c, groups, instances, nodes),
		Notices: noticeops.New(c, noticeops.Deps{
			Seal: records, Types: cfg.EventTypes, Allowed: func() egress.Allowed { return egress.Parse(cfg.Settings().Egress) },
		}),
		Applied: appliedops.New(c),
		Trail:   auditops.New(c),
	}
}
