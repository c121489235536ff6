package live

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

// selection says whose output is shown: that of named instances, or of those that flags select.
type selection struct {
	names                 []string
	labels, group, nodeID string
}

// instance is an instance that is shown.
type instance struct{ name, uid, group, node, state string }

func instanceOf(row output.Row) instance {
	field := func(name string) string { return gjson.GetBytes(row, name).String() }
	return instance{name: field("id"), uid: field("uid"), group: field("group"), node: field("node"), state: field("state")}
}

func (s *selection) flags(a *app.App, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&s.labels, "selector", "l", "", "servers of groups with these `labels`, for example mode=duels,region!=us")
	flags.StringVar(&s.group, "group", "", "servers of this `group`")
	flags.StringVar(&s.nodeID, "node", "", "servers on this `node`")
	command.CompleteFlag(cmd, "selector", cobra.NoFileCompletions)
	command.CompleteFlag(cmd, "group", command.CompleteNames(a, "group"))
	command.CompleteFlag(cmd, "node", command.CompleteNames(a, "node"))
}

// byFlags reports whether flags select the instances.
func (s *selection) byFlags() bool { return s.labels != "" || s.group != "" || s.nodeID != "" }

// take sets the names and checks that names and flags fit together.
func (s *selection) take(names []string) error {
	s.names = names
	switch {
	case len(names) > 0 && s.byFlags():
		return command.UsageError("leave out one of them", "names and flags that select servers cannot be combined")
	case len(names) == 0 && !s.byFlags():
		return command.UsageError("orrery get instances lists the names", "the command needs the name of a server, or --group, --node or -l")
	}
	_, err := parseLabels(s.labels)
	return err
}

// find returns the selected instances.
func (s *selection) find(ctx context.Context, client *orrery.Client) ([]instance, error) {
	kind := kinds.Get("instance")
	var found []instance
	for _, name := range s.names {
		row, _, err := app.Get(ctx, client, kind, "", name)
		if err != nil {
			return nil, err
		}
		found = append(found, instanceOf(row))
	}
	if len(s.names) > 0 {
		return found, nil
	}
	groups, err := s.groups(ctx, client)
	if err != nil {
		return nil, err
	}
	rows, err := app.List(ctx, client, kind, "", s.query())
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if i := instanceOf(row); s.has(i, groups) {
			found = append(found, i)
		}
	}
	return found, nil
}

// query returns the parameters that make the server select.
func (s *selection) query() url.Values {
	query := url.Values{}
	for name, value := range map[string]string{"group": s.group, "node": s.nodeID} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// has reports whether flags select an instance. groups are those of the labels; nil means all.
func (s *selection) has(i instance, groups map[string]bool) bool {
	return (s.group == "" || i.group == s.group) && (s.nodeID == "" || i.node == s.nodeID) && (groups == nil || groups[i.group])
}

// groups returns the groups that have the labels; nil if there is no condition on labels. A group or node that does
// not exist is an error.
func (s *selection) groups(ctx context.Context, client *orrery.Client) (map[string]bool, error) {
	for kind, name := range map[string]string{"group": s.group, "node": s.nodeID} {
		if name == "" {
			continue
		}
		if _, _, err := app.Get(ctx, client, kinds.Get(kind), "", name); err != nil {
			return nil, err
		}
	}
	conditions, err := parseLabels(s.labels)
	if err != nil || conditions == nil {
		return nil, err
	}
	rows, err := app.List(ctx, client, kinds.Get("group"), "", nil)
	if err != nil {
		return nil, err
	}
	groups := map[string]bool{}
	for _, row := range rows {
		if conditions.hold(gjson.GetBytes(row, "labels").Map()) {
			groups[gjson.GetBytes(row, "name").String()] = true
		}
	}
	return groups, nil
}

// labelConditions select groups that meet all of them.
type labelConditions []labelCondition

type labelCondition struct {
	key, value string
	// exists conditions do not look at the value.
	exists, not bool
}

// parseLabels parses conditions such as mode=duels,region!=us,beta,!old.
func parseLabels(text string) (labelConditions, error) {
	var conditions labelConditions
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		var c labelCondition
		key, value, hasValue := strings.Cut(part, "=")
		if hasValue {
			key, c.not = strings.CutSuffix(key, "!")
		} else {
			key, c.not = strings.CutPrefix(key, "!")
		}
		c.key, c.value, c.exists = strings.TrimSpace(key), strings.TrimSpace(strings.TrimPrefix(value, "=")), !hasValue
		if c.key == "" || strings.ContainsAny(c.key, " ()!") {
			return nil, command.UsageError("", "-l %q is not a condition such as mode=duels, region!=us, beta or !old", part)
		}
		conditions = append(conditions, c)
	}
	return conditions, nil
}

func (conditions labelConditions) hold(labels map[string]gjson.Result) bool {
	for _, c := range conditions {
		value, ok := labels[c.key]
		if holds := ok && (c.exists || value.String() == c.value); holds == c.not {
			return false
		}
	}
	return true
}

// previous returns the instance that had the name of i before, or that i replaces.
func previous(ctx context.Context, client *orrery.Client, i instance) (instance, error) {
	kind := kinds.Get("instance")
	row, _, err := app.Get(ctx, client, kind, "", i.uid)
	if err != nil {
		return instance{}, err
	}
	if uid := gjson.GetBytes(row, "replaces").String(); uid != "" {
		replaced, _, err := app.Get(ctx, client, kind, "", uid)
		if err == nil || !errors.Is(err, orrery.ErrNotFound) {
			return instanceOf(replaced), err
		}
	}
	rows, err := app.List(ctx, client, kind, "", url.Values{"group": {i.group}, "all": {"true"}})
	if err != nil {
		return instance{}, err
	}
	var latest output.Row
	for _, row := range rows {
		other := instanceOf(row)
		if other.name == i.name && other.uid != i.uid && (latest == nil || gjson.GetBytes(row, "createdAt").String() > gjson.GetBytes(latest, "createdAt").String()) {
			latest = row
		}
	}
	if latest == nil {
		err := fmt.Errorf("no server before %s is stored", i.name)
		return instance{}, exit.With(exit.NotFound, err, "orrery get instances --all --group "+i.group+" lists those that ended")
	}
	return instanceOf(latest), nil
}
