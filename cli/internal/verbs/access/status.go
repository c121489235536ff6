package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

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

// counted are the kinds of objects that status counts, with the permissions to list them.
var counted = []struct{ kind, permission string }{
	{"node", "nodes.view"}, {"group", "groups.view"}, {"instance", "instances.view"}, {"player", "players.view"},
}

// count returns how many objects there are of each kind in counted that the user may list.
func count(ctx context.Context, client *orrery.Client) (json.RawMessage, error) {
	counts := map[string]int64{}
	for _, c := range counted {
		kind := kinds.Get(c.kind)
		var page struct {
			Total int64 `json:"total"`
		}
		err := client.Call(ctx, orrery.Request{Method: http.MethodGet, Path: kind.ListPath(""), Query: url.Values{"pageSize": {"1"}}}, &page)
		switch {
		case err == nil:
			counts[kind.Plural] = page.Total
		case !errors.Is(err, orrery.ErrDenied):
			return nil, err
		}
	}
	return json.Marshal(counts)
}

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
			continue
		}
		if err != nil {
			return err
		}
	}
	if s.Overview == nil {
		if s.Overview, err = count(ctx, client); err != nil {
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
	problems := notPermitted("groups.view")
	if s.Problems != nil {
		problems = fmt.Sprint(*s.Problems)
	}
	lines := [][]string{
		{"server", s.Server},
		{"version", s.Version},
		{"logged in as", s.User},
		{"health", paint(gjson.GetBytes(s.Readiness, "status").String())},
	}
	for _, c := range counted {
		plural := kinds.Get(c.kind).Plural
		total := gjson.GetBytes(s.Overview, plural)
		text := total.String()
		if !total.Exists() {
			text = notPermitted(c.permission)
		}
		lines = append(lines, []string{plural, text})
	}
	return append(lines, []string{"problems", problems})
}

// notPermitted stands for what the user may not see.
func notPermitted(permission string) string {
	return "you may not see them: that needs the permission " + permission
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
		return a.Say(answer, app.Version(), "client %s", app.Version())
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
	if note := app.VersionNote(app.Version(), server.Version); note != "" {
		a.Notef("%s", note)
	}
	return a.Say(answer, app.Version(), "client %s\nserver %s at %s", app.Version(), server.Version, client.Address())
}
