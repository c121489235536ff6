package acting

import (
	"fmt"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
)

// The columns of the answers about several instances.
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
	actedOn = []output.Column{
		{Header: "NAME", Path: "id"},
		{Header: "OK", Path: "ok"},
		{Header: "CHANGED", Path: "changed"},
		{Header: "MESSAGE", Path: "message"},
	}
)

// reportBulk prints what a request did to several instances: a sentence for each, or the results for programs. The
// failures are printed already.
func reportBulk(a *app.App, answer *orrery.BulkInstancesResponse, doing string) (*command.Failures, error) {
	people, err := forPeople(a)
	if err != nil {
		return nil, err
	}
	if !people {
		if err := table(a, actedOn, answer.Data); err != nil {
			return nil, err
		}
	}
	failed := &command.Failures{}
	for _, result := range answer.Data {
		failed.Add(a, result.ID, command.BulkError(result.OK, result.Error, result.Message))
		if !people || !result.OK {
			continue
		}
		if _, err := fmt.Fprintln(a.Out, output.OneLine(bulkSentence(result, doing))); err != nil {
			return nil, err
		}
	}
	return failed, nil
}

func bulkSentence(result orrery.BulkInstanceResult, doing string) string {
	switch {
	case !result.Changed:
		return fmt.Sprintf("instance %s: %s", result.ID, result.Message)
	case result.WaitingForNode != "":
		return fmt.Sprintf("instance %s %s as soon as node %s is back", result.ID, doing, result.WaitingForNode)
	}
	return fmt.Sprintf("instance %s %s", result.ID, doing)
}
