package command_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	orrery "github.com/orreryhq/orrery/sdk"
)

func TestSelectionRefusesWhatCannotBeCombined(t *testing.T) {
	for name, c := range map[string]struct {
		selection command.Selection
		names     []string
		ok        bool
	}{
		"names":              {command.Selection{}, []string{"lobby-1"}, true},
		"group and node":     {command.Selection{Groups: []string{"lobby"}, Node: "node-1"}, nil, true},
		"all":                {command.Selection{All: true}, nil, true},
		"nothing":            {command.Selection{}, nil, false},
		"names and group":    {command.Selection{Groups: []string{"lobby"}}, []string{"lobby-1"}, false},
		"names and all":      {command.Selection{All: true}, []string{"lobby-1"}, false},
		"all and labels":     {command.Selection{All: true, Labels: "a=b"}, nil, false},
		"empty name":         {command.Selection{}, []string{""}, false},
		"too many at once":   {command.Selection{Parallel: 65}, []string{"lobby-1"}, false},
		"negative at a time": {command.Selection{Parallel: -1}, []string{"lobby-1"}, false},
	} {
		err := c.selection.Take(kinds.Get("instance"), c.names)
		if (err == nil) != c.ok || err != nil && exit.CodeOf(err) != exit.Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSelectionDescribesItself(t *testing.T) {
	for want, c := range map[string]struct {
		selection command.Selection
		kind      string
		names     []string
	}{
		"4 instances of group lobby (lobby-1, lobby-2, lobby-3, …)": {command.Selection{Groups: []string{"lobby"}}, "instance", []string{"lobby-1", "lobby-2", "lobby-3", "lobby-4"}},
		"1 instance on node node-1 (a-1)":                           {command.Selection{Node: "node-1"}, "instance", []string{"a-1"}},
		"all 2 nodes (n-1, n-2)":                                    {command.Selection{All: true}, "node", []string{"n-1", "n-2"}},
		"1 node with labels zone=a (n-1)":                           {command.Selection{Labels: "zone=a"}, "node", []string{"n-1"}},
	} {
		if got := c.selection.Describe(kinds.Get(c.kind), c.names); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFailuresHaveTheCodeTheyShare(t *testing.T) {
	missing := &orrery.Error{Status: 404, Message: "there is no instance a"}
	conflict := &orrery.Error{Status: 409, Message: "it runs"}
	for want, errs := range map[int][]error{
		exit.OK:       {nil, nil},
		exit.NotFound: {missing, nil, missing},
		exit.Failed:   {missing, conflict},
	} {
		var printed bytes.Buffer
		var f command.Failures
		for _, err := range errs {
			f.Add(&app.App{Err: &printed}, "a", err)
		}
		if err := f.Err(); exit.CodeOf(err) != want || err != nil && !errors.Is(err, command.ErrSomeFailed) {
			t.Errorf("%v: code %d, want %d", errs, exit.CodeOf(err), want)
		}
	}
}
