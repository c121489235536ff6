package acting

import (
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
)

// The columns of dry runs.
var (
	selectedInstances = []output.Column{
		{Header: "NAME", Path: "id"},
		{Header: "GROUP", Path: "group"},
		{Header: "NODE", Path: "node"},
		{Header: "STATE", Path: "state", State: true},
		{Header: "PLAYERS", Path: "playerCount"},
	}
	plannedInstances = []output.Column{
		{Header: "NAME", Path: "id"},
		{Header: "GROUP", Path: "group"},
		{Header: "NODE", Path: "node"},
		{Header: "STATE", Path: "state", State: true},
		{Header: "PLAYERS", Path: "playerCount"},
		{Header: "CHANGES", Path: "changed"},
		{Header: "MESSAGE", Path: "message"},
	}
	plannedNodes = []output.Column{
		{Header: "NAME", Path: "id"},
		{Header: "CHANGES", Path: "changed"},
		{Header: "MESSAGE", Path: "message"},
	}
)

// reportBulk prints what a request did to several instances: a sentence for each, or the results for programs.
func reportBulk(a *app.App, answer *orrery.BulkInstancesResponse, doing string) (*command.Failures, error) {
	all, err := newTally(a)
	if err != nil {
		return nil, err
	}
	for _, result := range answer.Data {
		err := command.BulkError(result.OK, result.Error, result.Message)
		if err := all.add(act{result.ID, changedIf(result.Changed), bulkSentence(result, doing)}, err); err != nil {
			return nil, err
		}
	}
	return &all.failed, reportAll(a, all.acts, answer.Data)
}

func bulkSentence(result orrery.BulkInstanceResult, doing string) string {
	switch {
	case !result.Changed:
		return fmt.Sprintf("instance %s was not changed: %s", result.ID, strings.TrimSuffix(result.Message, ": nothing to do"))
	case result.WaitingForNode != "":
		return fmt.Sprintf("instance %s %s as soon as node %s is back", result.ID, doing, result.WaitingForNode)
	}
	return fmt.Sprintf("instance %s %s", result.ID, doing)
}
