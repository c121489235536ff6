// Package doctor checks the cluster and this machine, and says what to fix.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/local"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	var data string
	cmd := command.New(a, command.Spec{
		Use: "doctor", Short: "Check the cluster and this machine, and say what to fix",
		Long: `Each line is OK, WARN or FAIL; SKIP is a check that was not possible, and says why. The exit code is 1 if something
fails. Without a login it checks what it can. If the data directory of a standalone is on this machine, it checks the
machine too.`,
		Example: `orrery doctor
orrery doctor -o json`,
		Run: func(ctx context.Context, _ []string) error { return runDoctor(ctx, a, data) },
	})
	cmd.Flags().StringVar(&data, "data", "", "data `directory` of a standalone on this machine")
	return []*cobra.Command{cmd}
}

// The results of a check.
const (
	ok   = "OK"
	warn = "WARN"
	fail = "FAIL"
	skip = "SKIP"
)

// finding is a line of the report.
type finding struct {
	Check   string `json:"check"`
	Result  string `json:"result"`
	Message string `json:"message"`
	// Fix is the command or the setting that helps.
	Fix string `json:"fix"`
}

// findings are what one check found.
type findings []finding

func (f *findings) add(result, fix, format string, args ...any) {
	*f = append(*f, finding{Result: result, Fix: fix, Message: output.Clean(fmt.Sprintf(format, args...))})
}

// need is what a check cannot do without.
type need int

const (
	nothing need = iota
	aServer
	aLogin
	aStandalone // whose data directory is on this machine
)

// check is one check.
type check struct {
	name  string
	needs need
	// about says what it checks, for the list of what a login adds.
	about string
	run   func(ctx context.Context, s *subject) findings
}

// checks are all checks, in the order of the report.
var checks = []check{
	{"server", nothing, "", checkServers},
	{"clock", aServer, "", checkClock},
	{"version", aServer, "", checkVersion},
	{"login", aServer, "", checkLogin},
	{"tls", aLogin, "whether the API is served without TLS", checkTransport},
	{"problems", aLogin, "groups, instances and sources that have problems", checkProblems},
	{"etcd", aLogin, "etcd", checkEtcd},
	{"clocks", aLogin, "the clocks of nodes", checkClocks},
	{"services", aLogin, "the services that run", checkServices},
	{"versions", aLogin, "the versions of services and nodes", checkVersions},
	{"nodes", aLogin, "nodes, their runtimes, limits and disks", checkNodes},
	{"addresses", aLogin, "the addresses of nodes", checkAddresses},
	{"inotify", aStandalone, "", checkInotify},
	{"files", aStandalone, "", checkOpenFiles},
	{"disk", aStandalone, "", checkDisk},
	{"port", aStandalone, "", checkPort},
}

// subject is what is checked, with what earlier checks found out.
type subject struct {
	app    *app.App
	target app.Target
	client *orrery.Client
	// local is nil if no data directory was found.
	local *local.Ready
	// reached are the servers that answered, empty if none did.
	reached []reached
	// loggedIn says that the login is accepted.
	loggedIn bool
	// members, nodes and diagnostics are read once; nil before.
	members     []orrery.ClusterMember
	nodes       []orrery.NodeOrPendingNode
	diagnostics json.RawMessage
}

// reached is a server that answered.
type reached struct {
	address, version string
	// offset is the time of the server minus that of this machine, exact to a second.
	offset time.Duration
}

// now returns the time of the server.
func (s *subject) now() time.Time { return time.Now().Add(s.reached[0].offset) }

func (s *subject) has(n need) bool {
	switch n {
	case aServer:
		return len(s.reached) > 0
	case aLogin:
		return s.loggedIn
	case aStandalone:
		return s.local != nil
	}
	return true
}

// checkTimeout bounds each check, so that one that hangs does not hide the others.
const checkTimeout = 15 * time.Second

func runDoctor(ctx context.Context, a *app.App, data string) error {
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	s := &subject{app: a}
	if s.target, err = a.Target(); err != nil {
		return err
	}
	if s.client, err = a.ClientOf(s.target); err != nil {
		return err
	}
	if s.local, err = findStandalone(data); err != nil {
		return err
	}
	var all findings
	for _, c := range checks {
		if !s.has(c.needs) {
			continue
		}
		found := c.perform(ctx, s)
		if ctx.Err() != nil {
			return exit.Hint(ctx.Err(), "the check "+c.name+" was not finished; nothing was changed")
		}
		all = append(all, found...)
		if printer.Format.ForPeople() {
			if err := show(a, printer.Style, found); err != nil {
				return err
			}
		}
	}
	if err := finish(a, printer, all); err != nil {
		return err
	}
	s.noteLogin()
	return verdict(all)
}

// perform runs a check and puts its name into what it found.
func (c check) perform(ctx context.Context, s *subject) findings {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	found := c.run(ctx, s)
	for i := range found {
		found[i].Check = c.name
	}
	return found
}

func show(a *app.App, style output.Style, found findings) error {
	for _, f := range found {
		if _, err := fmt.Fprintf(a.Out, "%s %-9s %s\n", style.State(fmt.Sprintf("%-4s", f.Result)), f.Check, f.Message); err != nil {
			return err
		}
		if f.Fix == "" {
			continue
		}
		if err := a.Linef("               %s", f.Fix); err != nil {
			return err
		}
	}
	return nil
}

var columns = []output.Column{
	{Header: "RESULT", Path: "result", State: true},
	{Header: "CHECK", Path: "check"},
	{Header: "MESSAGE", Path: "message"},
	{Header: "FIX", Path: "fix"},
}

// finish prints the report in the formats for programs, for which it must be complete.
func finish(a *app.App, p output.Printer, all findings) error {
	if p.Format.ForPeople() {
		return nil
	}
	rows, err := app.Rows(all)
	if err != nil {
		return err
	}
	return p.List(columns, "check", rows)
}

// noteLogin says what a login would add.
func (s *subject) noteLogin() {
	if s.loggedIn {
		return
	}
	var about []string
	for _, c := range checks {
		if c.needs == aLogin {
			about = append(about, c.about)
		}
	}
	s.app.Notef("with a login it also checks %s: orrery login", strings.Join(about, "; "))
}

func verdict(all findings) error {
	failed, warned := 0, 0
	for _, f := range all {
		switch f.Result {
		case fail:
			failed++
		case warn:
			warned++
		}
	}
	if failed == 0 {
		return nil
	}
	return exit.With(exit.Failed, fmt.Errorf("%d of %d checks fail, %d warn", failed, len(all), warned), "")
}

// unable adds why a check was not possible. It returns false if there is no error.
func (f *findings) unable(err error, permission string) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, orrery.ErrDenied):
		f.add(skip, "", "you may not see it: it needs the permission %s", permission)
	default:
		f.add(fail, exit.HintOf(err), "the server did not answer: %v", err)
	}
	return true
}
