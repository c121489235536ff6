package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func status(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use:     "status",
		Short:   "Show the health of the cluster at a glance",
		Example: "orrery status",
		Run:     func(ctx context.Context, _ []string) error { return runStatus(ctx, a) },
	})
}

// summary is what status prints.
type summary struct {
	Server    string          `json:"server"`
	Version   string          `json:"version"`
	User      string          `json:"user"`
	Overview  json.RawMessage `json:"overview"`
	Readiness json.RawMessage `json:"readiness"`
	// Problems is nil if the user may not list them.
	Problems *int64 `json:"problems"`
}

// notPermitted stands for a part that the user may not see.
const notPermitted = "{}"

func runStatus(ctx context.Context, a *app.App) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	var s summary
	var version, me, problems json.RawMessage
	for _, part := range []struct {
		path string
		into *json.RawMessage
		// mayBeDenied parts are left out for users without the permission.
		mayBeDenied bool
	}{
		{"/api/v1/system/version", &version, false},
		{"/api/v1/auth/me", &me, false},
		{"/api/v1/metrics/summary", &s.Overview, true},
		{"/api/v1/problems", &problems, true},
		{"/api/v1/system/health", &s.Readiness, false},
	} {
		err := client.Call(ctx, orrery.Request{Method: http.MethodGet, Path: part.path}, part.into)
		if part.mayBeDenied && errors.Is(err, orrery.ErrDenied) {
			*part.into = json.RawMessage(notPermitted)
			continue
		}
		if err != nil {
			return err
		}
	}
	s.Server = client.Address()
	s.Version = gjson.GetBytes(version, "version").String()
	s.User = gjson.GetBytes(me, "username").String()
	if total := gjson.GetBytes(problems, "total"); total.Exists() {
		s.Problems = new(total.Int())
	}
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	if !printer.Format.ForPeople() {
		row, err := app.Row(s)
		if err != nil {
			return err
		}
		return printer.Object(nil, "server", row)
	}
	if err := printer.Lines(statusLines(s, printer.Style.State)); err != nil {
		return err
	}
	return firstProblems(ctx, a, client, s.Problems)
}

func statusLines(s summary, paint func(string) string) [][]string {
	overview := func(path string) gjson.Result { return gjson.GetBytes(s.Overview, path) }
	problems := "you may not see them all"
	if s.Problems != nil {
		problems = fmt.Sprint(*s.Problems)
	}
	return [][]string{
		{"server", s.Server},
		{"version", s.Version},
		{"logged in as", s.User},
		{"health", paint(gjson.GetBytes(s.Readiness, "status").String())},
		{"nodes", text(overview("nodes"))},
		{"groups", text(overview("groups"))},
		{"instances", text(overview("instances"))},
		{"players", text(overview("players"))},
		{"problems", problems},
	}
}

// text shows an object of counters as "online 1, total 1".
func text(counters gjson.Result) string {
	if !counters.Exists() {
		return "you may not see this"
	}
	if !counters.IsObject() {
		return counters.String()
	}
	line := ""
	counters.ForEach(func(name, value gjson.Result) bool {
		if value.IsObject() || value.IsArray() {
			return true
		}
		if line != "" {
			line += ", "
		}
		line += name.String() + " " + value.String()
		return true
	})
	return line
}

// shownProblems is how many problems status shows.
const shownProblems = 5

func firstProblems(ctx context.Context, a *app.App, client *orrery.Client, total *int64) error {
	if total == nil || *total == 0 {
		return nil
	}
	kind := kinds.Get("problem")
	rows, err := app.List(ctx, client, kind, "", nil)
	if err != nil {
		return err
	}
	printer, err := a.Printer()
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	if err := printer.List(kind.Columns, kind.NameField, rows[:min(len(rows), shownProblems)]); err != nil {
		return err
	}
	if len(rows) > shownProblems {
		a.Notef("orrery problems lists all %d with what to do", len(rows))
	}
	return nil
}

func versionCommand(a *app.App) *cobra.Command {
	var clientOnly bool
	cmd := command.New(a, command.Spec{
		Use:     "version",
		Short:   "Show the versions of this program and of the server",
		Example: "orrery version",
		Run:     func(ctx context.Context, _ []string) error { return runVersion(ctx, a, clientOnly) },
	})
	cmd.Flags().BoolVar(&clientOnly, "client", false, "do not ask the server")
	return cmd
}

func runVersion(ctx context.Context, a *app.App, clientOnly bool) error {
	answer := map[string]any{"client": app.Version()}
	if clientOnly {
		return a.Report(answer, "client %s", app.Version())
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	var server struct {
		Version string `json:"version"`
	}
	if err := client.Call(ctx, orrery.Request{Method: http.MethodGet, Path: "/api/v1/system/version"}, &server); err != nil {
		return err
	}
	answer["server"], answer["address"] = server.Version, client.Address()
	if app.VersionsDiffer(app.Version(), server.Version) {
		a.Notef("the versions differ: one of them may lack what the other has")
	}
	return a.Report(answer, "client %s\nserver %s at %s", app.Version(), server.Version, client.Address())
}
