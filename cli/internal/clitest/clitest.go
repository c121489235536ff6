// Package clitest runs commands in tests against a server that gives recorded answers.
package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/clitest/golden"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/settings"
	"github.com/spf13/cobra"
)

// Server answers requests with the files of a directory. The answer to GET /api/v1/groups/lobby is in
// GET_groups_lobby.json, that to a dry run in POST_groups_lobby_scale_dryRun.json. A request without a file is
// answered with 404. The file may begin with a line such as "409" for another status than 200.
type Server struct {
	*httptest.Server
	dir string
	// Requests has the method, the path and the body of each request that changes something.
	Requests []string
}

// NewServer starts a Server for the files in testdata/api.
func NewServer(t *testing.T) *Server {
	s := &Server{dir: filepath.Join("testdata", "api")}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/")
	if path == "events/stream" {
		stream(w, r)
		return
	}
	if r.Method != http.MethodGet {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		s.Requests = append(s.Requests, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+body.String()))
	}
	name := r.Method + "_" + strings.ReplaceAll(path, "/", "_")
	if r.URL.Query().Get("dryRun") == "true" {
		name += "_dryRun"
	}
	w.Header().Set("Content-Type", "application/json")
	content, err := os.ReadFile(filepath.Join(s.dir, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"error":{"code":"NOT_FOUND","message":"there is no %s","status":404}}`, path)
		return
	}
	if status, rest, is := bytes.Cut(content, []byte("\n")); is && json.Unmarshal(status, new(int)) == nil {
		code := 0
		_ = json.Unmarshal(status, &code)
		w.WriteHeader(code)
		content = rest
	}
	_, _ = w.Write(content)
}

// stream is an event stream without events.
func stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "event: connected\ndata: {\"latestSequence\":1,\"clusterId\":\"c\"}\n\n")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// Result is what a command did.
type Result struct {
	Out, Err string
	Code     int
}

// String returns all of it, for a golden file.
func (r Result) String() string {
	return fmt.Sprintf("%s--- stderr\n%s--- exit %d\n", r.Out, r.Err, r.Code)
}

// timeout bounds a command. It is generous, because it fails the test.
const timeout = 2 * time.Minute

// Run runs a command of a package against a server. in is its standard input.
func Run(t *testing.T, commands func(*app.App) []*cobra.Command, server, in string, args ...string) Result {
	t.Helper()
	var out, errors bytes.Buffer
	a := &app.App{
		In: strings.NewReader(in), Out: &out, Err: &errors, Env: func(string) string { return "" },
		Settings: settings.New(filepath.Join(t.TempDir(), "config.yaml"), nil),
	}
	root := &cobra.Command{Use: "orrery", SilenceErrors: true, SilenceUsage: true}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.With(exit.Usage, err, "") })
	root.PersistentFlags().StringVarP(&a.Flags.Output, "output", "o", "", "")
	root.PersistentFlags().DurationVar(&a.Flags.Timeout, "timeout", timeout, "")
	a.Flags.Server = server
	root.AddCommand(commands(a)...)
	root.SetOut(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err != nil {
		fmt.Fprintf(&errors, "orrery: %v\n", err)
		if hint := a.HintOf(err); hint != "" {
			fmt.Fprintf(&errors, "  %s\n", hint)
		}
	}
	return Result{Out: out.String(), Err: errors.String(), Code: exit.CodeOf(err)}
}

// Name returns a file name for the arguments of a command.
func Name(args []string) string {
	return strings.NewReplacer(" ", "-", "/", "_", "=", "-", "*", "all", "{", "", "}", "", "[", "", "]", "").Replace(strings.Join(args, " "))
}

// Main runs the tests of a package with UTC as the local time zone, which golden files have.
func Main(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

// Case is a command line whose output a golden file has.
type Case struct {
	In   string
	Args string
}

// varying is what differs between two runs: the time of an answer, and the version of the test.
var varying = regexp.MustCompile(`(answers in|this program is version) \S+`)

// Golden runs commands and compares all that they print with files in testdata/golden.
func Golden(t *testing.T, commands func(*app.App) []*cobra.Command, cases []Case) {
	for _, c := range cases {
		args := strings.Fields(c.Args)
		t.Run(Name(args), func(t *testing.T) {
			server := NewServer(t)
			result := Run(t, commands, server.URL, c.In, args...)
			text := strings.ReplaceAll(result.String(), server.URL, "http://SERVER")
			text = varying.ReplaceAllString(text, "$1 …")
			if len(server.Requests) > 0 {
				text += "--- requests\n" + strings.Join(server.Requests, "\n") + "\n"
			}
			golden.Equal(t, "golden/"+Name(args)+".txt", text)
		})
	}
}
