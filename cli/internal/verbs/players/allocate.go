package players

import (
	"context"
	"errors"
	"fmt"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// selectorFlag appends a selector. --group and --selector share the list, so that it has the order in which
// they were given.
type selectorFlag struct {
	list *[]orrery.AllocationRequestSelector
	of   func(text string) orrery.AllocationRequestSelector
}

// Set appends a selector.
func (f selectorFlag) Set(text string) error {
	*f.list = append(*f.list, f.of(text))
	return nil
}

// String is empty: the flag has no default.
func (f selectorFlag) String() string { return "" }

// Type names the values in the help.
func (f selectorFlag) Type() string { return "selector" }

func ofGroup(name string) orrery.AllocationRequestSelector {
	return orrery.AllocationRequestSelector{Group: &name}
}

func ofLabels(expression string) orrery.AllocationRequestSelector {
	return orrery.AllocationRequestSelector{Labels: &expression}
}

func allocate(a *app.App) *cobra.Command {
	var body orrery.AllocationRequest
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use:   "allocate --group NAME",
		Short: "Claim a ready instance, or slots of one",
		Long: `Selectors are tried in the order in which they are given: --group names a group, -l selects groups by their labels.
Without --slots it claims a whole instance without players. The sentence has the address for players; -o name prints
the ID for release and renew.`,
		Example: `orrery allocate --group lobby --slots 2 --ttl 10m
orrery allocate -l mode=duels --group lobby --strategy spread --note "match 17"
orrery allocate --group lobby -o jsonpath='{.port}'`,
		Run: func(ctx context.Context, _ []string) error { return runAllocate(ctx, a, &body, dryRun) },
	})
	flags := cmd.Flags()
	flags.Var(selectorFlag{&body.Selectors, ofGroup}, "group", "`name` of a group to take from; repeat it for more")
	flags.VarP(selectorFlag{&body.Selectors, ofLabels}, "selector", "l", "`expression` over the labels of groups, such as mode=duels; repeat it for more")
	command.OptionalNumber(flags, &body.Slots, "slots", "`number` of players to reserve room for")
	command.OptionalSeconds(flags, &body.TTLSeconds, "ttl", "when it ends by itself, as a `duration`; otherwise on release")
	command.OptionalText(flags, &body.Strategy, "strategy", "`strategy`: pack takes the fullest instance with room, spread the emptiest", nil)
	command.OptionalText(flags, &body.Note, "note", "`text` to keep with it, such as the ID of a match", nil)
	command.DryRunFlag(a, cmd, &dryRun)
	command.CompleteFlag(cmd, "group", command.CompleteNames(a, "group"))
	command.CompleteFlag(cmd, "strategy", cobra.FixedCompletions([]string{"pack", "spread"}, cobra.ShellCompDirectiveNoFileComp))
	command.NoCompletions(cmd)
	return cmd
}

func runAllocate(ctx context.Context, a *app.App, body *orrery.AllocationRequest, dryRun bool) error {
	target, err := a.Target()
	if err != nil {
		return err
	}
	if len(body.Selectors) == 0 && target.Group != "" {
		body.Selectors = []orrery.AllocationRequestSelector{ofGroup(target.Group)}
	}
	if len(body.Selectors) == 0 {
		return command.UsageError("pass --group NAME or -l EXPRESSION", "allocate needs to know where to take an instance from")
	}
	client, err := a.ClientOf(target)
	if err != nil {
		return err
	}
	if dryRun {
		d, err := client.CreateAllocationDryRun(ctx, body)
		if err != nil {
			return noRoom(ctx, client, body, err)
		}
		return a.Say(d, d.InstanceID, "would allocate %s", claimed(d.Slots, d.InstanceID))
	}
	allocation, err := client.CreateAllocation(ctx, body)
	if err != nil {
		return noRoom(ctx, client, body, err)
	}
	return a.Say(allocation, allocation.ID, "allocated %s at %s:%d %s, allocation %s",
		claimed(allocation.Slots, allocation.InstanceID), allocation.Address, allocation.Port, until(allocation), allocation.ID)
}

func claimed(slots int64, instance string) string {
	if slots == 0 {
		return "the whole of " + instance
	}
	return fmt.Sprintf("%d slots of %s", slots, instance)
}

func until(allocation *orrery.Allocation) string {
	if allocation.ExpiresAt == nil {
		return "until it is released"
	}
	return "until " + kinds.Moment(*allocation.ExpiresAt)
}

// noRoom returns the error for a group that does not exist instead of err, which is a conflict for it too.
func noRoom(ctx context.Context, client *orrery.Client, body *orrery.AllocationRequest, err error) error {
	if !errors.Is(err, orrery.ErrConflict) {
		return err
	}
	for _, s := range body.Selectors {
		if s.Group == nil {
			continue
		}
		if _, _, missing := app.Get(ctx, client, kinds.Get("group"), "", *s.Group); errors.Is(missing, orrery.ErrNotFound) {
			return missing
		}
	}
	return err
}

func release(a *app.App) *cobra.Command {
	var dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "release ID...", Short: "Release allocations",
		Example: "orrery release 8f3k2m",
		Args:    command.Between(1, -1, "the ID of an allocation"), Complete: command.CompleteNames(a, "allocation"),
		Run: func(ctx context.Context, ids []string) error { return runRelease(ctx, a, ids, dryRun) },
	})
	command.DryRunFlag(a, cmd, &dryRun)
	return cmd
}

func runRelease(ctx context.Context, a *app.App, ids []string, dryRun bool) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	return command.Each(ctx, a, ids, func(id string) error {
		if dryRun {
			d, err := client.DeleteAllocationDryRun(ctx, id)
			if err != nil {
				return command.NotFound(ctx, client, err, "allocation", id)
			}
			return a.Say(d, id, "allocation %s would be released", id)
		}
		if err := client.DeleteAllocation(ctx, id); err != nil {
			return command.NotFound(ctx, client, err, "allocation", id)
		}
		return a.Say(map[string]any{"id": id, "status": "released"}, id, "allocation %s released", id)
	})
}

func renew(a *app.App) *cobra.Command {
	var ttl *int64
	cmd := command.New(a, command.Spec{
		Use: "renew ID... --ttl DURATION", Short: "Renew allocations",
		Example: "orrery renew 8f3k2m --ttl 10m",
		Args:    command.Between(1, -1, "the ID of an allocation"), Complete: command.CompleteNames(a, "allocation"),
		Run: func(ctx context.Context, ids []string) error { return runRenew(ctx, a, ids, ttl) },
	})
	command.OptionalSeconds(cmd.Flags(), &ttl, "ttl", "when they end by themselves, counted from now, as a `duration`")
	command.NoCompletions(cmd)
	return cmd
}

func runRenew(ctx context.Context, a *app.App, ids []string, ttl *int64) error {
	if ttl == nil {
		return command.UsageError("for example --ttl 10m", "renew needs --ttl")
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	return command.Each(ctx, a, ids, func(id string) error {
		allocation, err := client.UpdateAllocation(ctx, id, orrery.Patch{"ttlSeconds": *ttl})
		if err != nil {
			return command.NotFound(ctx, client, err, "allocation", id)
		}
		return a.Say(allocation, id, "allocation %s of %s renewed %s", id, allocation.InstanceID, until(allocation))
	})
}
