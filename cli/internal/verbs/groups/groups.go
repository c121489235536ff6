// Package groups has the commands that change how groups run: their number, rollouts, allocations, schedules,
// overlays, notices and maintenance.
package groups

import (
	"context"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		scale(a), rollout(a), scaling(a), maintenance(a), schedule(a), overlay(a), notice(a),
		allocate(a), release(a), renew(a), crash(a), player(a), network(a),
	}
}

// found adds similar names to a 404 about an object.
func found(ctx context.Context, client *orrery.Client, err error, kind, name string) error {
	if err == nil {
		return nil
	}
	return app.Suggest(ctx, client, err, kinds.Get(kind), "", name)
}
