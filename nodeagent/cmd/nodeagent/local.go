package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// Exit codes of the local commands.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitNoAgent = 3
)

const localUsage = `nodeagent local operates the agent on this host without etcd and the gateway.
		nodeagent local list                          list the instances on this host
		nodeagent local status                        show the agent: session, etcd, unwritten statuses
		nodeagent local console ID [-lines N] [-from OFFSET] [-follow]
		nodeagent local send [-data DIR] ID LINE      type a line into a console; put flags before the id, or write
																																																"--" before a line that contains flags: send ID -- LINE
		nodeagent local stop ID... | -group G | -all  [-force] [-no-wait]
ID is an instance's id or name.
		-data DIR   the data directory of the agent or of standalone; also ORRERY_DATA (default ./node, else ./data/node)
		-json       print JSON
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no agent runs on the data directory.
`

// localCommand is one call of "nodeagent local".
type localCommand struct {
	stdout, stderr io.Writer
	agent          *client.Local

	data               string
	json, follow       bool
	force, all, noWait bool
	group              string
	lines              int
	from               int64
	words              []string
}

// local runs "nodeagent local" with the arguments after these two words.
func local(args, env []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		fmt.Fprint(stdout, localUsage)
		return exitOK
	}
	ctx, done := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer done()
	c := &localCommand{stdout: stdout, stderr: stderr}
	run, err := c.parse(args[0], args[1:], env)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, localUsage)
		return exitOK
	}
	if err == nil {
		err = run(ctx)
	}
	return c.outcome(err)
}

func (c *localCommand) outcome(err error) int {
	if err == nil {
		return exitOK
	}
	message := errs.MessageOf(err)
	if message == errs.MessageOf(nil) {
		message = err.Error()
	}
	fmt.Fprintf(c.stderr, "nodeagent local: %s\n", message)
	switch {
	case errors.Is(err, client.ErrNoAgent):
		return exitNoAgent
	case errs.Is(err, errs.Invalid):
		fmt.Fprintln(c.stderr, "See nodeagent local help.")
		return exitUsage
	}
	return exitFailure
}

// parse reads a verb with its flags and words and finds the data directory.
func (c *localCommand) parse(verb string, args, env []string) (func(context.Context) error, error) {
	fs := flag.NewFlagSet(verb, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&c.data, "data", "", "")
	fs.BoolVar(&c.json, "json", false, "")
	var run func(context.Context) error
	least, most := 0, 0
	switch verb {
	case "list":
		run = c.list
	case "status":
		run = c.status
	case "console":
		run, least, most = c.console, 1, 1
		fs.IntVar(&c.lines, "lines", 100, "")
		fs.Int64Var(&c.from, "from", -1, "")
		fs.BoolVar(&c.follow, "follow", false, "")
	case "send":
		run, least, most = c.writeLine, 2, len(args)
	case "stop":
		run, most = c.stop, len(args)
		fs.BoolVar(&c.force, "force", false, "")
		fs.BoolVar(&c.all, "all", false, "")
		fs.BoolVar(&c.noWait, "no-wait", false, "")
		fs.StringVar(&c.group, "group", "", "")
	default:
		return nil, errs.New(errs.Invalid, "there is no command %q", verb)
	}
	var err error
	if c.words, err = parseMixed(fs, args, verb != "send"); errors.Is(err, flag.ErrHelp) {
		return nil, err
	} else if err != nil {
		return nil, &errs.Error{Kind: errs.Invalid, Message: err.Error()}
	}
	if verb == "send" {
		if err := flagsInLine(c.words, args); err != nil {
			return nil, err
		}
	}
	if n := len(c.words); n < least || n > most {
		return nil, errs.New(errs.Invalid, "%s takes %s, %d given", verb, counted(least, most), n)
	}
	dir, err := findData(c.data, env)
	if err != nil {
		return nil, err
	}
	c.agent = client.NewLocal(dir)
	return run, nil
}

func counted(least, most int) string {
	switch {
	case most == 0:
		return "no further words"
	case least == most:
		return "the id or name of one instance"
	}
	return "an id or name and a line"
}

// parseMixed parses flags before the words and, if mixed, between and after them. Everything
// after a "--" is a word.
func parseMixed(fs *flag.FlagSet, args []string, mixed bool) (words []string, err error) {
	var rest []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, rest = args[:i], args[i+1:]
	}
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if args = fs.Args(); len(args) == 0 || !mixed {
			return slices.Concat(words, args, rest), nil
		}
		words, args = append(words, args[0]), args[1:]
	}
}

// flagsInLine rejects a line that contains what looks like a flag, unless it follows a "--".
func flagsInLine(words, args []string) error {
	if slices.Contains(args, "--") || len(words) == 0 {
		return nil
	}
	for _, w := range words[1:] {
		name, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
		if strings.HasPrefix(w, "-") && (name == "data" || name == "json") {
			return errs.New(errs.Invalid, "%s is in the line and would be typed: put it before the id, or write -- before the line if it belongs to the line", w)
		}
	}
	return nil
}

// findData returns the agent's data directory: the given one or the one within a given
// standalone's, otherwise the programs' defaults.
func findData(given string, env []string) (string, error) {
	if given == "" {
		for _, pair := range env {
			if value, ok := strings.CutPrefix(pair, "ORRERY_DATA="); ok {
				given = value
			}
		}
	}
	candidates := []string{"./node", "./data/node"}
	if given != "" {
		candidates = []string{given, filepath.Join(given, "node")}
	}
	for _, dir := range candidates {
		if _, err := os.Stat(filepath.Join(dir, "journal")); err == nil || errors.Is(err, os.ErrPermission) {
			return dir, nil
		}
	}
	e := errs.New(errs.Unavailable, "no agent has its data in %s: pass -data DIR, the directory that the agent (or standalone) was started with", strings.Join(candidates, " or "))
	e.Err = client.ErrNoAgent
	return "", e
}
