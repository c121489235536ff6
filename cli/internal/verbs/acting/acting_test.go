package acting_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/clitest/golden"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/settings"
	"github.com/orreryhq/orrery/cli/internal/verbs/acting"
	"github.com/spf13/cobra"
)

// replay answers requests with what a real gateway answered: testdata/api/METHOD_path.json, with _dryRun at the end of
// the name for a dry run. An empty file is an answer without a body, a missing one a 404.
type replay struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
}

func newReplay(t *testing.T) *replay {
	r := &replay{}
	r.Server = httptest.NewServer(http.HandlerFunc(r.answer))
	t.Cleanup(r.Close)
	return r
}

func (r *replay) answer(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	path, query := strings.TrimPrefix(request.URL.Path, "/api/v1/"), request.URL.Query()
	line := strings.TrimRight(fmt.Sprintf("%s %s?%s %s", request.Method, path, request.URL.RawQuery, body), " ?")
	r.mu.Lock()
	r.requests = append(r.requests, strings.Replace(line, "? ", " ", 1))
	r.mu.Unlock()
	name := request.Method + "_" + strings.ReplaceAll(path, "/", "_")
	if query.Get("dryRun") == "true" {
		name += "_dryRun"
	}
	if path == "events/stream" {
		events(w, request)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	content, err := os.ReadFile(filepath.Join("testdata", "api", name+".json"))
	switch {
	case err != nil:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"error":{"code":"NOT_FOUND","message":"there is no such object","status":404}}`)
	case len(content) == 0:
		w.WriteHeader(http.StatusNoContent)
	default:
		_, _ = w.Write(content)
	}
}

// events is an event stream on which nothing happens.
func events(w http.ResponseWriter, request *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "event: connected\ndata: {\"latestSequence\":1,\"clusterId\":\"c\"}\n\n")
	_ = http.NewResponseController(w).Flush()
	<-request.Context().Done()
}

// run runs a command and returns all that can be seen of it: the requests, the output, the error and the exit code.
func (r *replay) run(t *testing.T, answer string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app.App{
		In: strings.NewReader(answer), Out: &out, Err: &errs, Interactive: answer != "",
		Env:      func(name string) string { return map[string]string{"ORRERY_SERVER": r.URL, "TERM": "dumb"}[name] },
		Settings: settings.New("", nil),
	}
	root := &cobra.Command{Use: "orrery", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().StringVarP(&a.Flags.Output, "output", "o", "", "")
	root.AddCommand(acting.Commands(a)...)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "$ orrery %s\n", strings.Join(args, " "))
	for _, request := range r.requests {
		fmt.Fprintf(&b, "> %s\n", request)
	}
	r.requests = nil
	b.WriteString(out.String())
	if errs.Len() > 0 {
		fmt.Fprintf(&b, "--- stderr\n%s", errs.String())
		if !strings.HasSuffix(errs.String(), "\n") {
			b.WriteByte('\n')
		}
	}
	if err != nil {
		fmt.Fprintf(&b, "error %d: %v\n", exit.CodeOf(err), err)
		if hint := exit.HintOf(err); hint != "" {
			fmt.Fprintf(&b, "  %s\n", hint)
		}
	}
	return b.String() + "\n"
}

// transcripts are the commands of each golden file. A line is what is typed; "yes " and "no " before it answer the
// question, without which there is no terminal.
var transcripts = map[string][]string{
	"instances": {
		"stop lobby-9",
		"restart lobby-1",
		"restart instance/lobby-1 -o name",
		"kill lobby-2",
		"freeze lobby-1",
		"freeze survival-1",
		"freeze survival-1 lobby-9 lobby-1 -o csv",
		"freeze --group lobby --dry-run",
		"freeze --group lobby --yes",
		"freeze --group lobby --yes -o name",
		"sleep lobby-1 lobby-2 --dry-run",
		"wake --all --yes",
		"unfreeze lobby-1 lobby-9",
		"unfreeze lobby-1 -o csv",
		"sleep survival-1",
		"wake survival-1",
		"stop lobby-1 lobby-2 lobby-99",
		"stop lobby-1 lobby-2 lobby-99 -o name",
		"stop lobby-1 lobby-2 lobby-99 -o csv",
		"stop --group lobby --dry-run",
		"stop --group lobby",
		"no stop --group lobby",
		"yes stop --group lobby --node node-1 --parallel 4",
		"stop -l mode=duels --yes",
		"stop --all --yes -o json",
		"stop",
		"stop lobby-1 --group lobby",
		"stop --all --group lobby",
		"send lobby-1 say hello -x --wait",
		"send instance lobby-1 say hello",
		"send --group lobby --yes say hello",
		"send lobby-1",
		"move survival-1 --to node-2 --dry-run",
		"move survival-1 --to node-2 --grace 5m --message disks",
		"move survival-1 --cancel",
		"move survival-1 --cancel --to node-2",
	},
	"groups": {
		"start group lobby --count 2 --dry-run",
		"start group lobby --count 2",
		"start group lobby --count 2 -o name",
		"start group lobby --count 2 -o csv",
		"start lobby-1 --count 2",
		"start group lobby --var MAP=desert --var MODE=",
		"start group lobby --var MAP",
		"start lobby-1 --var MAP=desert",
		"start group lobby survival",
		"restart group lobby --dry-run",
		"restart group lobby",
		"restart group lobby -o name",
	},
	"nodes": {
		"cordon node-1",
		"cordon node/node-1 -o name",
		"uncordon node-1 -o json",
		"cordon node-1 -o csv",
		"cordon node-2",
		"undrain node-2 -o csv",
		"uncordon node-9",
		"drain node-1 node-9 --dry-run",
		"drain -l zone=a --dry-run -o name",
		"drain --all",
		"drain node-1 --grace 10m --kick-message bye --shutdown -o jsonpath=remainingInstances",
		"drain node-1 --grace 1ms",
		"undrain node-1",
		"revoke node-1 --dry-run",
		"unrevoke node-9",
		"label node-1 rack=a zone-",
		"label node/node-1 rack=a zone- --dry-run",
		"label node node-1 node-9 ssd= -o name",
		"label node-1 rack=a -o jsonpath={.labels}",
		"label -l rack=a rack=b --yes",
		"label --all rack=b",
		"label -l gpu rack=b --yes",
		"label -l a<b rack=b",
		"label node-1",
		"label rack=a",
		"label node-1 rack=a rack-",
		"shutdown node node-1 --dry-run",
		"shutdown node node-1",
		"no shutdown node node-1",
		"yes shutdown node node-1 --reason disks",
		"shutdown node node-1 node-9 --yes -o json",
		"shutdown node --all",
		"shutdown gateway --dry-run",
		"yes shutdown gateway -o name",
		"shutdown gateway",
	},
	"wait": {
		"wait instance lobby-1 --for running",
		"wait instance lobby-1 --for ready -o name",
		"wait instance lobby-1 lobby-9 --for state=RUNNING",
		"wait instance badstatic-1 --for running",
		"wait instance badstatic-1 --for stopped",
		"wait instance lobby-9 --for running",
		"wait instance lobby-9 --for deleted",
		"wait group lobby --for ready -o jsonpath=name",
		"wait group badstatic --for ready",
		"wait group lobby --for rollout",
		"wait deployment 1 --group lobby --for rollout",
		"wait group nap --for rollout",
		"wait node node-1 --for ready",
		"wait node node-1 --for drained",
		"wait node node-1 --for rollout",
		"wait node node-1 --for nope=1",
		"wait node node-1",
		"wait node --for ready",
	},
	"delete": {
		"delete group lobby --dry-run",
		"delete group/lobby",
		"delete group lobby -o json",
		"rm group lobby nope",
		"delete group survival --dry-run",
		"delete api-token ci",
		"delete api-token one",
		"rm group lobby nope -o csv",
		"delete api-token ci --dry-run -o name",
		"delete instance lobby-1",
		"delete lobby-1",
		"delete player alice",
		"delete artifact 1.21.4",
		"delete group --all",
		"delete group lobby --discard-data",
	},
}

func TestTranscripts(t *testing.T) {
	for name, lines := range transcripts {
		t.Run(name, func(t *testing.T) {
			r := newReplay(t)
			var all strings.Builder
			for _, line := range lines {
				answer := ""
				for _, word := range []string{"yes", "no"} {
					if rest, ok := strings.CutPrefix(line, word+" "); ok {
						answer, line = word+"\n", rest
					}
				}
				all.WriteString(r.run(t, answer, strings.Fields(line)...))
			}
			golden.Equal(t, name+".txt", all.String())
		})
	}
}

func TestOneNameIsOneObjectAndFlagsSelectAList(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), "nope") {
			fmt.Fprint(w, `{"data":[{"id":"nope","ok":false,"message":"there is none","error":{"code":"NOT_FOUND","message":"there is none","status":404}}]}`)
			return
		}
		fmt.Fprint(w, `{"data":[{"id":"a","ok":true,"changed":true,"message":"it runs"}]}`)
	}))
	defer server.Close()
	r := &replay{Server: server}
	for args, want := range map[string]string{
		"stop a --dry-run -o json":      "{\n  \"id\": \"a\"",
		"freeze a --dry-run -o json":    "{\n  \"id\": \"a\"",
		"cordon a --dry-run -o json":    "{\n  \"id\": \"a\"",
		"stop a b --dry-run -o json":    "[\n  {",
		"stop --all --dry-run -o json":  "[\n  {",
		"label a k=1 -o json":           "{\n  \"",
		"label --all --yes k=1 -o json": "[\n  {",
		"stop nope --dry-run":           "error 4: there is none",
		"drain nope --dry-run":          "error 4: there is none",
	} {
		got := r.run(t, "", strings.Fields(args)...)
		if _, after, _ := strings.Cut(got, "\n"); !strings.HasPrefix(after, want) {
			t.Errorf("%s prints %s, want %s", args, got, want)
		}
	}
}

func TestEveryFormatPrintsAnAct(t *testing.T) {
	r := newReplay(t)
	var all strings.Builder
	for _, format := range output.Formats {
		if format == "jsonpath=" {
			format += "{.instance.id}"
		}
		all.WriteString(r.run(t, "", "freeze", "lobby-1", "-o", format))
	}
	golden.Equal(t, "formats.txt", all.String())
}
