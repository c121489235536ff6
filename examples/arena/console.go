package arena

import (
	"bufio"
	"context"
	"io"
	"strings"
)

// maxLine is the length at which a longer console line is cut.
const maxLine = 32 << 10

// readLines sends the lines of stdin until ctx ends. It never closes the channel, because
// the end of the console is no reason to stop.
func readLines(ctx context.Context, stdin io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		r := bufio.NewReaderSize(stdin, maxLine)
		for {
			line, cut, err := r.ReadLine()
			if err != nil {
				return
			}
			text := string(line)
			for cut && err == nil {
				_, cut, err = r.ReadLine()
			}
			select {
			case lines <- text:
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

const helpText = `stop: save the world and stop the server
say <text>: send a message to everybody
list: list the players online
save: save the world
help: show this list`

// obey executes a console line and reports whether it was a stop. The world must be loaded.
func (a *arena) obey(line string) (stop bool) {
	command, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch strings.TrimPrefix(command, "/") {
	case "":
	case "stop":
		if !a.opts.ignoreStop {
			return true
		}
		a.log.info("Ignoring stop")
	case "say":
		a.say(strings.TrimSpace(rest))
	case "list":
		a.list()
	case "save", "save-all":
		if err := a.save(); err != nil {
			a.log.error("%v", err)
		}
	case "help":
		for l := range strings.Lines(helpText) {
			a.log.info("%s", strings.TrimRight(l, "\n"))
		}
	default:
		a.log.info("Unknown command %q. Type \"help\" for help.", command)
	}
	return false
}

func (a *arena) say(text string) {
	if text == "" {
		a.log.info("Usage: say <text>")
		return
	}
	a.log.info("[Server] %s", text)
	a.world.Messages++
}

func (a *arena) list() {
	online := samplePlayers(a.opts.players)
	names := make([]string, len(online))
	for i, p := range online {
		names[i] = p.Name
	}
	if a.opts.players > len(online) {
		names = append(names, "…")
	}
	a.log.info("There are %d of a max of %d players online: %s", a.opts.players, a.set.maxPlayers, strings.Join(names, ", "))
}
