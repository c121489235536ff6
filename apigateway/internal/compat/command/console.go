package command

import (
	"context"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

func (i *Interpreter) consoleCommands() []command {
	return []command{
		{name: "help", other: []string{"?"}, args: []string{"[command…]"}, about: "the commands, or those that begin with some words", run: i.help},
		{name: "stop", other: []string{"exit"}, about: "leave this console; the gateway is stopped where it was started", run: func(context.Context, *call) error { return ErrLeave }},
	}
}

// help lists the commands.
func (i *Interpreter) help(_ context.Context, c *call) error {
	about := strings.ToLower(strings.Join(strings.Fields(c.arg(0)), " "))
	var rows [][]string
	for n := range i.commands {
		cmd := &i.commands[n]
		if !strings.HasPrefix(cmd.name, about) {
			continue
		}
		usage := cmd.usage()
		if len(cmd.other) > 0 {
			usage += "  (or " + strings.Join(cmd.other, ", ") + ")"
		}
		rows = append(rows, []string{usage, cmd.about})
	}
	if len(rows) == 0 {
		return errs.New(errs.NotFound, "there is no command %s: help lists them", clip(about))
	}
	return c.table(rows)
}
