package app

import (
	"fmt"

	"github.com/orreryhq/orrery/cli/internal/output"
)

// Show prints an answer of the server: as people prints it, or with -o json and the like the answer itself.
// name is what -o name prints.
func (a *App) Show(answer any, name string, people func(output.Printer) error) error {
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	switch {
	case printer.Format.ForPeople():
		return people(printer)
	case printer.Format.Name == "name" && name == "":
		return nil // it has no name: that it succeeded is all
	case printer.Format.Name == "name":
		_, err := fmt.Fprintln(a.Out, name)
		return err
	}
	row, err := Row(answer)
	if err != nil {
		return err
	}
	return printer.Object(nil, "", row)
}

// Say prints a sentence to standard output, or with -o json and the like the answer. name is what -o name
// prints.
func (a *App) Say(answer any, name, format string, args ...any) error {
	return a.Show(answer, name, func(output.Printer) error { return a.Linef(format, args...) })
}

// Linef prints a line to standard output without control characters, which could steer the terminal.
func (a *App) Linef(format string, args ...any) error {
	_, err := fmt.Fprintln(a.Out, output.Clean(fmt.Sprintf(format, args...)))
	return err
}
