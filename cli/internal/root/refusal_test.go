package root_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/root"
	"github.com/orreryhq/orrery/cli/internal/settings"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestMain runs the tests in an empty directory, because some examples write files.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "orrery-root-")
	if err == nil {
		err = os.Chdir(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The tests mostly wait between attempts, so many of them run at once.
	flag.Parse()
	if err := flag.Set("test.parallel", "32"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// example is one line of the help of a command.
type example struct {
	path string
	args []string
	// local examples do not talk to a server, and following ones do so until they are stopped.
	local, following bool
}

// examples returns those of all commands. Each must be complete: a command that can be typed.
func examples(t *testing.T) []example {
	t.Helper()
	var all []example
	seen := map[string]bool{} // a command and its parent may have the same example
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.CommandPath() == "orrery up" {
			return // it would start a server
		}
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			line = strings.TrimSpace(line)
			if line == "" || seen[line] {
				continue
			}
			seen[line] = true
			args := split(line)
			if args[0] != "orrery" || slices.Contains(args, "|") {
				t.Errorf("%s: the example %q is not a single command of orrery", cmd.CommandPath(), line)
				continue
			}
			all = append(all, example{
				path: cmd.CommandPath(), args: args[1:],
				local: command.IsLocal(target(cmd, args[1:])), following: command.Follows(target(cmd, args[1:]), args),
			})
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(root.New(&app.App{Env: func(string) string { return "" }}))
	return all
}

func TestNoNumberAndNoDurationIsNegative(t *testing.T) {
	walkFlags(root.New(&app.App{Env: func(string) string { return "" }}), func(path string, f *pflag.Flag) {
		name, _ := pflag.UnquoteUsage(f)
		isCount := slices.Contains([]string{"number", "days", "bytes", "percent", "duration", "time", "int", "float"}, name) ||
			slices.Contains([]string{"int", "int64", "duration", "number", "float64"}, f.Value.Type())
		if !isCount || f.Value.Type() == "string" { // a command checks that by itself
			return
		}
		for _, text := range []string{"-7", "-7s", "-0.5", "NaN", "", "x"} {
			if f.Value.Set(text) == nil {
				t.Errorf("%s accepts --%s=%q", path, f.Name, text)
			}
		}
	})
}

func TestAFormatThatMakesNoSenseIsRefusedBeforeAnythingIsDone(t *testing.T) {
	asked := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the server was asked: %s %s", r.Method, r.URL.Path)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(asked.Close)
	for _, line := range []string{
		"stop lobby-1 -o table-x", "logout -o xml", "create user bob --role VIEWER -o yml", "get instances -o jsonpath=[",
		"logs lobby-1 -o json", "attach lobby-1 -o yaml", "file cat lobby-1 motd.txt -o name", "template cat lobby motd.txt -o csv", "top -o json", "events -o csv",
	} {
		if code, _, stderr := run(t, t.Context(), asked.URL, strings.Fields(line)...); code != exit.Usage || !strings.Contains(stderr, "-o") {
			t.Errorf("orrery %s: exit code %d, want %d\n%s", line, code, exit.Usage, stderr)
		}
	}
}

// walkFlags calls visit for each flag of a command and the commands below it.
func walkFlags(cmd *cobra.Command, visit func(path string, f *pflag.Flag)) {
	each := func(f *pflag.Flag) { visit(cmd.CommandPath(), f) }
	cmd.Flags().VisitAll(each)
	cmd.PersistentFlags().VisitAll(each)
	for _, child := range cmd.Commands() {
		walkFlags(child, visit)
	}
}

func TestANegativeTimeoutIsAnErrorOfUsage(t *testing.T) {
	var stderr bytes.Buffer
	a := &app.App{In: strings.NewReader(""), Out: io.Discard, Err: &stderr, Env: func(string) string { return "" }, Settings: settings.New("", nil)}
	if code := root.Run(t.Context(), a, []string{"get", "me", "--timeout", "-1s"}); code != exit.Usage || !strings.Contains(stderr.String(), "--timeout") {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
}

// target returns the command that the arguments select.
func target(cmd *cobra.Command, args []string) *cobra.Command {
	found, _, err := cmd.Root().Find(args)
	if err != nil {
		return cmd
	}
	return found
}

// split splits a line like a shell without expansions.
func split(line string) []string {
	var args []string
	var word strings.Builder
	quote, inWord := rune(0), false
	for _, r := range line {
		switch {
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inWord = r, true
		case r == quote:
			quote = 0
		case quote == 0 && r == ' ':
			if inWord {
				args, inWord = append(args, word.String()), false
				word.Reset()
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if inWord {
		args = append(args, word.String())
	}
	return args
}

// run runs a command like a program whose standard input is empty and not a terminal.
func run(t *testing.T, ctx context.Context, server string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	env := map[string]string{"HOME": t.TempDir(), "EDITOR": "true", "SHELL": "/bin/bash", "PATH": os.Getenv("PATH")}
	var out, err bytes.Buffer
	a := &app.App{
		In: strings.NewReader(""), Out: &out, Err: &err, Env: func(name string) string { return env[name] },
		Settings: settings.New(filepath.Join(t.TempDir(), "config.yaml"), nil),
	}
	change := a.Settings.Change(t.Context(), func(file *settings.File) error {
		login := &settings.Login{Token: "token"}
		file.Current = "local"
		file.Contexts = []settings.Context{{Name: "local", Servers: []string{server}, Login: login}, {Name: "production", Servers: []string{server}}}
		return nil
	})
	if change != nil {
		t.Fatal(change)
	}
	code = root.Run(ctx, a, args)
	return code, out.String(), err.String()
}

// failure is a way in which a server can fail, and the exit code of a command that needs it.
type failure struct {
	name string
	code int
	// answer answers a request.
	answer http.HandlerFunc
}

func refuse(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"code":%q,"message":"the server refuses this","status":%d}}`, code, status)
	}
}

var failures = []failure{
	{"401", exit.Denied, refuse(401, "UNAUTHORIZED")},
	{"403", exit.Denied, refuse(403, "FORBIDDEN")},
	{"404", exit.NotFound, refuse(404, "NOT_FOUND")},
	{"409", exit.Conflict, refuse(409, "CONFLICT")},
	{"412", exit.Conflict, refuse(412, "PRECONDITION_FAILED")},
	{"429", exit.Unavailable, refuse(429, "RATE_LIMITED")},
	{"503", exit.Unavailable, refuse(503, "UNAVAILABLE")},
	{"nothing", exit.Unavailable, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	{"half a body", exit.Failed, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`{"data":[{"id":`))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}},
}

// tolerated says which commands may end with another code, and why.
var tolerated = map[string]map[string][]int{
	// A login without a user name asks for it, and there is no terminal.
	"orrery":       {"*": {exit.Usage}},
	"orrery login": {"*": {exit.Usage}},
	// A full screen needs a terminal.
	"orrery top": {"*": {exit.Usage}},
	// The login has ended already.
	"orrery logout": {"401": {exit.OK}},
	// Without a file it asks for the value.
	"orrery secret":     {"*": {exit.Usage}},
	"orrery secret set": {"*": {exit.Usage}},
	// The directories, sessions and units of the examples do not exist.
	"orrery import":             {"*": {exit.Failed, exit.NotFound}},
	"orrery import cloudnet":    {"*": {exit.Failed, exit.NotFound}},
	"orrery import prexorcloud": {"*": {exit.Failed, exit.NotFound}},
	"orrery import pterodactyl": {"*": {exit.Failed, exit.NotFound}},
	"orrery import screen":      {"*": {exit.Failed, exit.NotFound}},
	"orrery import systemd":     {"*": {exit.Failed, exit.NotFound}},
	"orrery import universe":    {"*": {exit.Failed, exit.NotFound}},
	// There is no authority yet, or an earlier run of the example has written the files.
	"orrery pki":       {"*": {exit.NotFound, exit.Conflict}},
	"orrery pki init":  {"*": {exit.Conflict}},
	"orrery pki issue": {"*": {exit.NotFound, exit.Conflict}},
	// doctor reports failures as the result of its checks.
	"orrery doctor": {"*": {exit.Failed}},
}

func TestExamplesAgainstFailingServers(t *testing.T) {
	all := examples(t)
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(f.answer)
			t.Cleanup(server.Close)
			for _, e := range all {
				t.Run(strings.Join(e.args, " "), func(t *testing.T) {
					t.Parallel()
					e.against(t, server.URL, f)
				})
			}
		})
	}
}

// against runs an example. A command that follows something reconnects, until --timeout ends it.
func (e example) against(t *testing.T, server string, f failure) {
	wants := []int{f.code}
	if e.local {
		wants = []int{exit.OK, exit.Failed} // it may miss a file of the example
	}
	limit := "1m"
	if e.following {
		wants, limit = append(wants, exit.TimedOut), "300ms"
	}
	for mode, codes := range tolerated[e.path] {
		if mode == "*" || mode == f.name {
			wants = append(wants, codes...)
		}
	}
	args := append(slices.Clone(e.args), "--timeout", limit)
	if i := slices.Index(args, "--"); i >= 0 {
		args = slices.Insert(slices.Clone(e.args), i, "--timeout", limit)
	}
	code, stdout, stderr := run(t, t.Context(), server, substitute(t, server, args)...)
	if !slices.Contains(wants, code) {
		t.Errorf("orrery %s: exit code %d, want %v\n%s\n%s", strings.Join(args, " "), code, wants, stdout, stderr)
	}
	if code != exit.OK && strings.TrimSpace(stderr) == "" {
		t.Errorf("orrery %s: exit code %d without an error", strings.Join(args, " "), code)
	}
}

// substitute replaces the names of files in an example with files that exist, and URLs with that of
// the server.
func substitute(t *testing.T, server string, args []string) []string {
	t.Helper()
	dir, out := t.TempDir(), slices.Clone(args)
	for i, arg := range args {
		if strings.HasPrefix(arg, "http") {
			out[i] = server
			continue
		}
		if i == 0 || arg == "api-token" || arg == "join-token" {
			continue // a verb or a kind, not a file
		}
		name, content := arg, ""
		if key, value, ok := strings.Cut(arg, "="); ok && !strings.HasPrefix(arg, "-") {
			name, arg = value, key+"="
		} else {
			arg = ""
		}
		for _, file := range exampleFiles {
			if strings.HasSuffix(name, file.suffix) {
				content = file.content
			}
		}
		switch {
		case arg == "" && strings.HasPrefix(name, "./") && content == "":
			out[i] = dir // a directory with the files before it
			continue
		case content == "":
			continue
		}
		path := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		out[i] = arg + path
	}
	return out
}

// exampleFiles are the contents of files by the end of their names. The last that fits is used.
var exampleFiles = []struct{ suffix, content string }{
	{".yaml", "kind: Group\nname: lobby\nminInstances: 1\n"},
	{"rules.yaml", "scaleUpThreshold: 0.5\n"},
	{".json", `{"kind":"Group","name":"lobby","minInstances":1}`},
	{"secret", "password\n"},
	{".txt", "password\n"},
	{"ed25519", "key\n"},
	{".properties", "motd=hello\n"},
	{".zip", "PK\x05\x06" + strings.Repeat("\x00", 18)},
	{"token", "token\n"},
}

// expiring is a gateway that accepts a login until the first stream was open. Then it closes the stream.
func expiring(t *testing.T) string {
	var expired atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const object = `{"id":"lobby-1","uid":"u1","group":"lobby","node":"node-1","state":"STARTING","generation":1}`
		switch {
		case expired.Load() || r.URL.Path == "/api/v1/auth/refresh":
			refuse(http.StatusUnauthorized, "UNAUTHORIZED")(w, r)
		case strings.HasSuffix(r.URL.Path, "/stream"), strings.HasSuffix(r.URL.Path, "/console"):
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "event: connected\ndata: {\"latestSequence\":1,\"clusterId\":\"c\",\"instanceId\":\"u1\"}\n\n")
			expired.Store(true)
		case strings.HasSuffix(r.URL.Path, "/lobby-1"), strings.HasSuffix(r.URL.Path, "/lobby-2"):
			fmt.Fprint(w, object)
		default:
			fmt.Fprintf(w, `{"data":[%s],"total":1}`, object)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestALoginThatEndsInALongCommand(t *testing.T) {
	for _, line := range []string{
		"wait instance lobby-1 --for running", "get instances --watch", "get instance lobby-1 --watch", "events", "events -o json",
		"logs lobby-1 -f", "logs lobby-1 lobby-2 -f", "logs --group lobby -f", "logs node node-1 -f", "rollout status lobby --watch", "restart lobby-1 --wait",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			server := expiring(t)
			code, stdout, stderr := run(t, t.Context(), server, strings.Fields(line)...)
			if code != exit.Denied || !strings.Contains(stderr, "log in: orrery login "+server) {
				t.Errorf("exit code %d, want %d\n%s\n%s", code, exit.Denied, stdout, stderr)
			}
		})
	}
}

func TestCtrlCEndsEveryExample(t *testing.T) {
	for _, e := range examples(t) {
		if e.local {
			continue
		}
		t.Run(strings.Join(e.args, " "), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				cancel()
				<-ended
			}))
			defer server.Close()
			defer close(ended)
			code, stdout, stderr := run(t, ctx, server.URL, substitute(t, server.URL, e.args)...)
			if code != exit.Interrupted && !slices.Contains(tolerated[e.path]["*"], code) {
				t.Errorf("exit code %d, want %d\n%s\n%s", code, exit.Interrupted, stdout, stderr)
			}
		})
	}
}

func TestUsageErrorsNameTheNextStep(t *testing.T) {
	for _, args := range [][]string{
		{"gte"},
		{"get"},
		{"get", "instanecs"},
		{"get", "instances", "--nope"},
		{"get", "instances", "-o", "xml"},
		{"get", "instances", "--filter", "stat=RUNNING"},
		{"get", "instances", "--sort-by", "nope"},
		{"get", "users", "--node", "n"},
		{"describe", "instance"},
		{"context", "sue"},
		{"status", "now"},
		{"top"},
		{"stats"},
	} {
		code, stdout, stderr := run(t, t.Context(), "http://127.0.0.1:1", args...)
		if code != exit.Usage || stdout != "" || !strings.HasPrefix(stderr, "orrery: ") {
			t.Errorf("orrery %s: exit code %d\n%s\n%s", strings.Join(args, " "), code, stdout, stderr)
		}
	}
}

func TestEveryFlagAndCommandIsDescribed(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the summary is %q", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Example == "" && !cmd.HasSubCommands() && cmd.Name() != "help" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(root.New(&app.App{Env: func(string) string { return "" }}))
}
