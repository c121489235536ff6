package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// pollInterval is the polling interval.
const pollInterval = 200 * time.Millisecond

// maxSilence bounds how long an agent may not answer while a stop is awaited.
const maxSilence = 30 * time.Second

func (c *localCommand) list(ctx context.Context) error {
	all, err := c.agent.Instances(ctx)
	if err != nil {
		return err
	}
	if c.json {
		return c.print(client.Instances{Instances: all})
	}
	return c.table(all, time.Now())
}

func (c *localCommand) status(ctx context.Context) error {
	a, err := c.agent.Agent(ctx)
	if err != nil {
		return err
	}
	if c.json {
		return c.print(a)
	}
	return c.describe(a, time.Now())
}

func (c *localCommand) print(v any) error { return json.NewEncoder(c.stdout).Encode(v) }

// find resolves an id or name. NotFound if there is no such instance, Conflict if several
// ended instances have the name.
func (c *localCommand) find(all []client.Instance, word string) (fleet.InstanceID, error) {
	var ended, living []fleet.InstanceID
	for _, i := range all {
		switch {
		case string(i.ID) == word:
			return i.ID, nil
		case i.Name != word:
		case i.State.Terminal():
			ended = append(ended, i.ID)
		default:
			living = append(living, i.ID)
		}
	}
	for _, found := range [][]fleet.InstanceID{living, ended} {
		switch {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			return "", errs.New(errs.Conflict, "several instances are named %s: name one by its id: %v", word, found)
		}
	}
	return "", errs.New(errs.NotFound, "there is no instance %s on this node: see nodeagent local list", word)
}

func (c *localCommand) findAll(ctx context.Context, words []string) ([]fleet.InstanceID, error) {
	all, err := c.agent.Instances(ctx)
	if err != nil {
		return nil, err
	}
	var ids []fleet.InstanceID
	for _, w := range words {
		id, err := c.find(all, w)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (c *localCommand) writeLine(ctx context.Context) error {
	ids, err := c.findAll(ctx, c.words[:1])
	if err != nil {
		return err
	}
	return c.agent.WriteLine(ctx, ids[0], strings.Join(c.words[1:], " "))
}

func (c *localCommand) stop(ctx context.Context) error {
	ids, err := c.findAll(ctx, c.words)
	if err != nil {
		return err
	}
	answer, err := c.agent.Stop(ctx, client.Stop{Instances: ids, Group: fleet.GroupName(c.group), All: c.all, Force: c.force})
	if err != nil {
		return err
	}
	if !c.json {
		for _, i := range answer.Instances {
			fmt.Fprintf(c.stdout, "stopping %s (%s)\n", i.Name, i.ID)
		}
		for _, p := range answer.Problems {
			fmt.Fprintf(c.stderr, "%s (%s): %s\n", p.Name, p.ID, p.Message)
		}
		for _, id := range ids {
			if !mentions(answer, id) {
				fmt.Fprintf(c.stdout, "%s has ended already\n", id)
			}
		}
		if len(answer.Instances) == 0 {
			fmt.Fprintln(c.stdout, "nothing to stop")
			return nil
		}
		fmt.Fprintln(c.stdout, answer.Note)
	}
	if !c.noWait {
		if err := c.awaitEnds(ctx, answer.Instances); err != nil {
			return err
		}
	}
	if c.json {
		err = c.print(answer)
	}
	if n := len(answer.Problems); n > 0 && err == nil {
		err = errs.New(errs.Unavailable, "%d of %d instances may not stop", n, n+len(answer.Instances))
	}
	return err
}

// mentions reports whether an answer contains an instance.
func mentions(answer client.Stopping, id fleet.InstanceID) bool {
	return slices.ContainsFunc(answer.Instances, func(i client.Instance) bool { return i.ID == id }) ||
		slices.ContainsFunc(answer.Problems, func(p client.Problem) bool { return p.ID == id })
}

// awaitEnds waits until instances have ended or are forgotten, and updates their states.
func (c *localCommand) awaitEnds(ctx context.Context, stopping []client.Instance) error {
	for answered := time.Now(); ; answered = time.Now() {
		all, err := c.agent.Instances(ctx)
		for errs.Is(err, errs.Unavailable) && time.Since(answered) < maxSilence && pause.For(ctx, pollInterval) {
			all, err = c.agent.Instances(ctx) // the stop stays journalled while the agent is restarted
		}
		if err != nil {
			return err
		}
		left := 0
		for n := range stopping {
			if left += c.look(&stopping[n], all); ctx.Err() != nil {
				return errs.Wrap("local.stop", ctx.Err())
			}
		}
		if left == 0 || !pause.For(ctx, pollInterval) {
			return errs.Wrap("local.stop", ctx.Err())
		}
	}
}

// look updates one instance and prints its end. It returns 1 while the instance has not ended.
// A static instance that its group starts again has the same id and a higher generation.
func (c *localCommand) look(i *client.Instance, all []client.Instance) int {
	if i.State.Terminal() {
		return 0
	}
	again := ""
	at := slices.IndexFunc(all, func(now client.Instance) bool { return now.ID == i.ID })
	switch {
	case at < 0: // ended, and forgotten because the store has no record of it
		i.State = fleet.Stopped
	case all[at].Generation > i.Generation:
		i.State, i.PID = fleet.Stopped, 0
		again = fmt.Sprintf("; its group has restarted it as generation %d, which is %s", all[at].Generation, all[at].State)
	default:
		*i = all[at]
	}
	if !i.State.Terminal() {
		return 1
	}
	if !c.json {
		fmt.Fprintf(c.stdout, "%s (%s) is %s%s\n", i.Name, i.ID, i.State, again)
	}
	return 0
}
