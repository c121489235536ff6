// Package acting has the commands that act on instances and nodes, delete objects, and wait.
package acting

import (
	"context"
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	var commands []*cobra.Command
	for _, v := range instanceVerbs() {
		commands = append(commands, instanceCommand(a, v))
	}
	commands = append(commands, send(a), move(a))
	for _, v := range nodeVerbs() {
		commands = append(commands, nodeCommand(a, v))
	}
	return append(commands, revoke(a), unrevoke(a), label(a), shutdown(a), deleteCommand(a), waitCommand(a))
}

// The results of an act.
const (
	resultChanged   = "changed"
	resultUnchanged = "unchanged"
	resultFailed    = "failed"
	// resultPlanned is that of a dry run.
	resultPlanned = "would change"
)

// act is what happened to one object. It is a row of -o csv.
type act struct {
	Name    string `json:"name"`
	Result  string `json:"result"`
	Message string `json:"message"`
}

var actColumns = []output.Column{{Header: "NAME", Path: "name"}, {Header: "RESULT", Path: "result"}, {Header: "MESSAGE", Path: "message"}}

// changedIf is the result of an act that did not fail.
func changedIf(changed bool) string {
	if changed {
		return resultChanged
	}
	return resultUnchanged
}

// report prints what was done to one object: its message and more lines for people, and otherwise the server's answer.
func report(a *app.App, answer any, done act, more ...string) error {
	if a.Flags.Output == "csv" {
		return table(a, actColumns, []act{done})
	}
	return a.Show(answer, done.Name, func(output.Printer) error {
		for _, line := range append([]string{done.Message}, more...) {
			if err := a.Linef("%s", output.OneLine(line)); err != nil {
				return err
			}
		}
		return nil
	})
}

// tally collects what was done to several objects. People get a line for each object when it is done.
type tally struct {
	app    *app.App
	people bool
	acts   []act
	failed command.Failures
}

func newTally(a *app.App) (*tally, error) {
	people, err := forPeople(a)
	return &tally{app: a, people: people}, err
}

// add adds what was done to an object, or its failure if err is not nil.
func (t *tally) add(done act, err error, more ...string) error {
	t.failed.Add(t.app, done.Name, err)
	if err != nil {
		t.acts = append(t.acts, act{done.Name, resultFailed, err.Error()})
		return nil
	}
	t.acts = append(t.acts, done)
	if !t.people {
		return nil
	}
	return report(t.app, nil, done, more...)
}

// reportAll prints what was done to several objects for programs; answers are what the server says about them. -o name
// leaves out those that failed. People get a line for each object when it is done.
func reportAll[T any](a *app.App, acts []act, answers []T) error {
	switch people, err := forPeople(a); {
	case err != nil, people:
		return err
	case a.Flags.Output == "csv":
		return table(a, actColumns, acts)
	case a.Flags.Output == "name":
		return table(a, actColumns, slices.DeleteFunc(acts, func(done act) bool { return done.Result == resultFailed }))
	}
	return table(a, nil, answers)
}

// onEach calls one for each name and prints its answer, or its lines for people. With several names, or if flags select
// them, it prints a failure and continues with the next, and programs get a list. It returns the names for which one succeeded; none after Ctrl-C or --timeout.
func onEach(ctx context.Context, a *app.App, s *command.Selection, names []string,
	one func(ctx context.Context, name string) (answer any, lines []string, err error),
) (done []string, err error) {
	result := resultChanged
	if s.DryRun {
		result = resultPlanned
	}
	if len(names) == 1 && !s.ByFlags() {
		answer, lines, err := one(ctx, names[0])
		if err != nil {
			return nil, err
		}
		return names, report(a, answer, act{names[0], result, lines[0]}, lines[1:]...)
	}
	all, err := newTally(a)
	if err != nil {
		return nil, err
	}
	var answers []any
	for _, name := range names {
		answer, lines, err := one(ctx, name)
		if ctx.Err() != nil {
			return nil, exit.Hint(ctx.Err(), fmt.Sprintf("done: %d of %d; unknown: %s; not done: the names after it", len(done), len(names), name))
		}
		if err != nil {
			lines = []string{""}
		} else {
			answers, done = append(answers, answer), append(done, name)
		}
		if err := all.add(act{name, result, lines[0]}, err, lines[1:]...); err != nil {
			return nil, err
		}
	}
	if err := reportAll(a, all.acts, answers); err != nil {
		return nil, err
	}
	return done, all.failed.Err()
}

// table prints a list, as a table for people too. -o name prints the first column.
func table[T any](a *app.App, columns []output.Column, results []T) error {
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	rows, err := app.Rows(results)
	if err != nil {
		return err
	}
	name := ""
	if columns != nil {
		name = columns[0].Path
	}
	return printer.List(columns, name, rows)
}

// tableOrObject is table, but for programs one object instead of a list if single is true.
func tableOrObject[T any](a *app.App, single bool, columns []output.Column, results []T) error {
	if !single || len(results) != 1 {
		return table(a, columns, results)
	}
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	row, err := app.Row(results[0])
	if err != nil {
		return err
	}
	return printer.Object(columns, columns[0].Path, row)
}

// forPeople reports whether -o asks for text for people.
func forPeople(a *app.App) (bool, error) {
	printer, err := a.Printer()
	return printer.Format.ForPeople(), err
}
