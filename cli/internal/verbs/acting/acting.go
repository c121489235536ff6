// Package acting has the commands that act on instances and nodes, delete objects, and wait.
package acting

import (
	"fmt"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
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
	return append(commands, revoke(a), unrevoke(a), deleteCommand(a), waitCommand(a))
}

// report prints what a command did to one object. The formats for programs get the server's answer; name and csv
// get the object in it.
func report(a *app.App, kind *kinds.Kind, answer, object any, sentence string) error {
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	shown := answer
	switch {
	case printer.Format.ForPeople():
		_, err := fmt.Fprintln(a.Out, output.OneLine(sentence))
		return err
	case printer.Format.Name == "name" || printer.Format.Name == "csv":
		shown = object
	}
	row, err := app.Row(shown)
	if err != nil {
		return err
	}
	return printer.Object(kind.Columns, kind.NameField, row)
}

// reportLines is report with several lines for people.
func reportLines(a *app.App, kind *kinds.Kind, answer, object any, lines []string) error {
	people, err := forPeople(a)
	if err != nil {
		return err
	}
	if !people {
		return report(a, kind, answer, object, "")
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(a.Out, output.OneLine(line)); err != nil {
			return err
		}
	}
	return nil
}

// table prints the results of a request about several objects, as a table for people too.
func table[T any](a *app.App, columns []output.Column, results []T) error {
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	rows, err := app.Rows(results)
	if err != nil {
		return err
	}
	return printer.List(columns, "id", rows)
}

// forPeople reports whether -o asks for text for people.
func forPeople(a *app.App) (bool, error) {
	printer, err := a.Printer()
	return printer.Format.ForPeople(), err
}
