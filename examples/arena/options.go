package arena

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

// options are the command-line flags.
type options struct {
	port      int
	portGiven bool
	// players is the number of fake players online.
	players int
	lock    string

	bootDelay    time.Duration
	crashAfter   time.Duration // 0 means never
	crashCode    int
	ignoreTerm   bool
	ignoreStop   bool
	burnMemory   int // MiB
	burnCPU      int // goroutines
	printLines   int // lines per second
	daemonBehind bool
}

// parseOptions parses the flags. It writes errors and the usage to stderr.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("arena", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.port, "port", 0, "listen on this `port` instead of server-port; 0 takes a free one")
	f.IntVar(&o.players, "players", 0, "show `N` fake players as online")
	f.StringVar(&o.lock, "lock", "", "hold this lock `file` and append to it when it is acquired and released")
	f.DurationVar(&o.bootDelay, "boot-delay", 0, "wait before listening")
	f.DurationVar(&o.crashAfter, "crash-after", 0, "crash this long after the start, with nothing saved")
	f.IntVar(&o.crashCode, "crash-code", 1, "exit `code` of that crash")
	f.BoolVar(&o.ignoreTerm, "ignore-term", false, "ignore SIGTERM and SIGINT, in the daemon too")
	f.BoolVar(&o.ignoreStop, "ignore-stop", false, "ignore the console's stop")
	f.IntVar(&o.burnMemory, "burn-memory", 0, "hold that many `MiB`")
	f.IntVar(&o.burnCPU, "burn-cpu", 0, "keep `N` cores busy")
	f.IntVar(&o.printLines, "print-lines", 0, "print `N` numbered lines a second")
	f.BoolVar(&o.daemonBehind, "fork-daemon", false, "start a process that is forked twice, has a session of its own and never ends")
	if err := f.Parse(args); err != nil {
		return options{}, err
	}
	f.Visit(func(fl *flag.Flag) { o.portGiven = o.portGiven || fl.Name == "port" })
	if err := o.validate(f.Args()); err != nil {
		fmt.Fprintf(stderr, "arena: %v; arena --help lists the flags\n", err)
		return options{}, err
	}
	return o, nil
}

func (o options) validate(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	for _, n := range []struct {
		name       string
		value, max int
	}{
		{"port", o.port, maxPort},
		{"players", o.players, 1_000_000},
		{"crash-code", o.crashCode, 255},
		{"burn-memory", o.burnMemory, 1 << 20},
		{"burn-cpu", o.burnCPU, 1024},
		{"print-lines", o.printLines, 1_000_000},
	} {
		if n.value < 0 || n.value > n.max {
			return fmt.Errorf("--%s must be between 0 and %d, not %d", n.name, n.max, n.value)
		}
	}
	if o.bootDelay < 0 || o.crashAfter < 0 {
		return errors.New("--boot-delay and --crash-after must not be negative")
	}
	return nil
}
