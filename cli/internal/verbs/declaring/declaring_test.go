package declaring_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/clitest/golden"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/root"
	"github.com/orreryhq/orrery/cli/internal/settings"
)

// terminal runs commands in a directory against a server and records what they print.
type terminal struct {
	t      *testing.T
	server *server
	env    map[string]string
	// script is everything that was typed and printed.
	script strings.Builder
	stdin  string
	// interactive makes the commands ask.
	interactive bool
	ctx         context.Context
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	t.Setenv("TZ", "UTC")
	s := newServer(t)
	term := &terminal{t: t, server: s, env: map[string]string{"ORRERY_SERVER": s.URL}, ctx: t.Context()}
	t.Cleanup(func() { golden.Equal(t, t.Name()+".txt", term.script.String()) }) // after Chdir is undone
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	return term
}

func TestMain(m *testing.M) { clitest.Main(m) }

var temporary = regexp.MustCompile(`/\S*orrery-edit-\d+|127\.0\.0\.1:\d+`)

// run runs a command and returns its exit code.
func (term *terminal) run(args ...string) int {
	term.t.Helper()
	var out, errs bytes.Buffer
	a := &app.App{
		In: strings.NewReader(term.stdin), Out: &out, Err: &errs, Env: func(name string) string { return term.env[name] },
		Settings: settings.New(filepath.Join(term.t.TempDir(), "config.yaml"), nil), Interactive: term.interactive,
	}
	code := root.Run(term.ctx, a, args)
	fmt.Fprintf(&term.script, "$ orrery %s\n%s", strings.Join(args, " "), out.String())
	for _, line := range strings.SplitAfter(temporary.ReplaceAllString(errs.String(), "DIR"), "\n") {
		if line != "" {
			fmt.Fprintf(&term.script, "! %s", line)
		}
	}
	fmt.Fprintf(&term.script, "[%d]\n", code)
	return code
}

func (term *terminal) write(name, content string) {
	term.t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o755); err != nil {
		term.t.Fatal(err)
	}
}

const lobby = `kind: Group
name: lobby
platform: paper
minInstances: 1
env:
  A: "1"
  B: "2"
`

const duels = `---
kind: Schedule
name: nightly
group: duels
action: restart
cron: 0 4 * * *
---
kind: Group
name: duels
parent: lobby
`

func TestApplyCreatesConfiguresAndKeeps(t *testing.T) {
	term := newTerminal(t)
	term.write("fleet.yaml", duels+"---\n"+lobby)
	term.run("diff", "-f", "fleet.yaml")
	term.run("apply", "-f", "fleet.yaml")
	term.run("apply", "-f", "fleet.yaml")
	term.server.change("group/lobby", "alice", "group.update", `{"maxPlayers": 7, "env": {"C": "3"}}`)
	term.write("fleet.yaml", duels+"---\n"+strings.Replace(strings.Replace(lobby, "  B: \"2\"\n", "", 1), "minInstances: 1", "memoryMb: 64", 1))
	term.run("apply", "-f", "fleet.yaml", "--dry-run")
	term.run("apply", "-f", "fleet.yaml", "-o", "json")
	term.run("export", "group", "lobby", "--all-fields")
}

func TestApplyConflict(t *testing.T) {
	term := newTerminal(t)
	term.write("lobby.yaml", lobby)
	term.run("apply", "-f", "lobby.yaml")
	term.server.change("group/lobby", "alice", "group.scale", `{"minInstances": 5, "env": {"A": "9"}}`)
	if code := term.run("apply", "-f", "lobby.yaml"); code != exit.Conflict {
		t.Errorf("a conflict ends with %d", code)
	}
	term.run("diff", "-f", "lobby.yaml")
	term.run("apply", "-f", "lobby.yaml", "-o", "json")
	term.run("apply", "-f", "lobby.yaml", "--force")
	term.run("apply", "-f", "lobby.yaml")
}

func TestExportSaysThatTheEnvironmentIsHidden(t *testing.T) {
	term := newTerminal(t)
	term.write("lobby.yaml", lobby)
	term.run("apply", "-f", "lobby.yaml")
	delete(term.server.objects["group/lobby"], "env") // as in an answer to a user without groups.env
	term.run("export", "group", "lobby")
	term.run("export", "group", "lobby", "-o", "json")
}

func TestDiffSaysWhyItNeedsThePermissionToChange(t *testing.T) {
	term := newTerminal(t)
	term.write("lobby.yaml", lobby)
	term.run("apply", "-f", "lobby.yaml")
	term.write("lobby.yaml", strings.Replace(lobby, "minInstances: 1", "minInstances: 2", 1))
	term.server.refuse = func(r *http.Request) (int, string) {
		if r.Method != http.MethodGet {
			return http.StatusForbidden, "the role VIEWER lacks the permission groups.update"
		}
		return 0, ""
	}
	if code := term.run("diff", "-f", "lobby.yaml"); code != exit.Denied {
		t.Errorf("the exit code is %d, want %d", code, exit.Denied)
	}
}

func TestApplyRetriesAnObjectThatChangesMeanwhile(t *testing.T) {
	term := newTerminal(t)
	term.write("lobby.yaml", lobby)
	term.run("apply", "-f", "lobby.yaml")
	term.write("lobby.yaml", strings.Replace(lobby, `A: "1"`, `A: "2"`, 1))
	players := 0
	term.server.before = func(r *http.Request) {
		if r.Method == http.MethodPatch && players < 1 {
			players++
			term.server.change("group/lobby", "bob", "group.update", `{"maxPlayers": 3}`)
		}
	}
	term.run("apply", "-f", "lobby.yaml")
	term.write("lobby.yaml", strings.Replace(lobby, `A: "1"`, `A: "3"`, 1))
	term.server.before = func(r *http.Request) {
		if players++; r.Method == http.MethodPatch {
			term.server.change("group/lobby", "bob", "group.update", fmt.Sprintf(`{"maxPlayers": %d}`, players+10))
		}
	}
	if code := term.run("apply", "-f", "lobby.yaml"); code != exit.Conflict {
		t.Errorf("an object that always changes ends with %d", code)
	}
}

func TestApplyReadsAgainWhatAWriteDidWhoseAnswerWasLost(t *testing.T) {
	term := newTerminal(t)
	for i, method := range []string{http.MethodPut, http.MethodPatch, http.MethodPut} {
		term.write("lobby.yaml", strings.Replace(lobby, `A: "1"`, fmt.Sprintf(`A: "%d"`, i+1), 1))
		lost := 0
		term.server.lose = func(r *http.Request) bool {
			if r.Method == method {
				lost++
			}
			return r.Method == method && lost == 1
		}
		if code := term.run("apply", "-f", "lobby.yaml"); code != exit.OK || lost == 0 {
			t.Errorf("apply without an answer to %s ends with %d after %d of them", method, code, lost)
		}
		if code := term.run("apply", "-f", "lobby.yaml"); code != exit.OK {
			t.Errorf("the next apply ends with %d", code)
		}
	}
}

func TestOneFailureDoesNotStopTheRest(t *testing.T) {
	term := newTerminal(t)
	term.write("fleet.yaml", duels+"---\n"+lobby)
	term.server.refuse = func(r *http.Request) (int, string) {
		if r.Method == http.MethodPost && r.ContentLength > 40 {
			return 422, "minInstances must be between 0 and 100000, is 1; env.A is too long; nothing names this"
		}
		return 0, ""
	}
	if code := term.run("apply", "-f", "fleet.yaml"); code != exit.Failed {
		t.Errorf("ended with %d", code)
	}
	term.server.refuse = func(r *http.Request) (int, string) {
		if strings.Contains(r.URL.Path, "/applied/") && r.Method == http.MethodPut {
			return 403, "you may not update groups"
		}
		return 0, ""
	}
	term.run("apply", "-f", "fleet.yaml")
}

func TestBadAnswers(t *testing.T) {
	term := newTerminal(t)
	term.write("fleet.yaml", duels+"---\n"+lobby)
	for _, c := range []struct{ status, code int }{{401, exit.Denied}, {403, exit.Denied}, {404, exit.NotFound}, {409, exit.Conflict}, {412, exit.Conflict}, {500, exit.Failed}} {
		term.server.refuse = func(*http.Request) (int, string) { return c.status, "no" }
		for _, args := range [][]string{{"apply", "-f", "fleet.yaml"}, {"create", "group", "x"}, {"export", "groups"}} {
			if code := term.run(args...); code != c.code {
				t.Errorf("%v with the answer %d ends with %d", args, c.status, code)
			}
		}
	}
	for _, body := range []string{"", "null", "[]", `{"name": "lob`} {
		term.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
		if code := term.run("apply", "-f", "fleet.yaml"); code != exit.Failed {
			t.Errorf("with the answer %q apply ends with %d", body, code)
		}
	}
	term.server.Close()
	if code := term.run("apply", "-f", "fleet.yaml"); code != exit.Unavailable {
		t.Errorf("without a server apply ends with %d", code)
	}
}

func TestInterruptedApplySaysWhatWasDone(t *testing.T) {
	term := newTerminal(t)
	term.write("fleet.yaml", duels+"---\n"+lobby)
	ctx, cancel := context.WithCancel(t.Context())
	term.ctx = ctx
	term.server.before = func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/applied/group/lobby") {
			cancel()
		}
	}
	if code := term.run("apply", "-f", "fleet.yaml"); code != exit.Interrupted {
		t.Errorf("ended with %d", code)
	}
}

func TestPrune(t *testing.T) {
	term := newTerminal(t)
	term.write("fleet.yaml", duels+"---\n"+lobby)
	term.run("apply", "-f", "fleet.yaml")
	term.write("fleet.yaml", "kind: Group\nname: arena\n")
	if code := term.run("apply", "-f", "fleet.yaml", "--prune"); code != exit.Usage {
		t.Errorf("without a terminal it ends with %d", code)
	}
	term.interactive, term.stdin = true, "no\n"
	term.run("apply", "-f", "fleet.yaml", "--prune")
	term.run("apply", "-f", "fleet.yaml", "--prune", "-l", "team=a", "--dry-run")
	term.stdin = "yes\n"
	term.run("apply", "-f", "fleet.yaml", "--prune")
	term.run("apply", "-f", "fleet.yaml", "--prune")
	term.run("get", "groups", "-o", "name")
	term.run("get", "schedules", "-o", "name")
}

func TestBadInput(t *testing.T) {
	term := newTerminal(t)
	term.write("broken.yaml", "kind: Group\nname: a: b\n")
	term.write("typo.yaml", "kind: Group\nname: a\nminInstance: 3\nplatformVersion: 1.20\n")
	for _, args := range [][]string{
		{"apply"},
		{"apply", "-f", "broken.yaml"},
		{"diff", "-f", "typo.yaml"},
		{"apply", "-f", "none.yaml"},
		{"apply", "-f", "typo.yaml", "-l", "a=b"},
		{"apply", "-f", "typo.yaml", "--prune", "-l", "a<b"},
		{"create", "gruop", "x"},
		{"create", "group"},
		{"create", "group", "x", "--set", "minInstance=1"},
		{"create", "group", "x", "--memory", "2X"},
		{"create", "user", "x"},
		{"create", "api-token", "x", "--expires", "soon"},
		{"edit", "instance", "x"},
		{"edit", "group", "x"},
		{"export", "group", "x"},
		{"export", "groups", "-o", "csv"},
		{"init", "game", "minecaft"},
	} {
		if code := term.run(args...); code == exit.OK {
			t.Errorf("%v succeeded", args)
		}
	}
}

func TestCreate(t *testing.T) {
	term := newTerminal(t)
	term.run("create", "group", "lobby", "--command", "./run", "--memory", "2G", "--min", "1", "--max", "3", "--template", "a", "--template", "b", "--set", "labels.team=x", "--dry-run")
	term.run("create", "group", "lobby", "--command", "./run", "--memory", "1.5GiB", "--set", "env.A=1")
	term.run("create", "group", "lobby")
	term.run("create", "schedule", "nightly", "--set", "group=lobby", "--set", "cron=0 4 * * *", "-o", "name")
	term.run("create", "schedule", "nightly", "--set", "group=lobby")
	term.stdin = "kind: Group\nname: lobby\n---\nkind: Group\nname: arena\n"
	term.run("create", "-f", "-")
	term.run("export", "groups")
}

func TestEdit(t *testing.T) {
	term := newTerminal(t)
	term.write("lobby.yaml", lobby)
	term.run("apply", "-f", "lobby.yaml")
	if code := term.run("edit", "group", "lobby"); code != exit.Usage {
		t.Errorf("without a terminal it ends with %d", code)
	}
	term.interactive = true
	term.env["EDITOR"] = "true"
	term.run("edit", "group", "lobby")
	term.env["EDITOR"] = "sed -i 's/^minInstances: .*/minInstances: 2/'"
	term.run("edit", "group", "lobby")
	term.server.refuse = func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch {
			return 422, "maxPlayers must not be negative, is -1"
		}
		return 0, ""
	}
	term.env["EDITOR"] = "sh -c 'grep -A2 applied \"$1\" >>seen; sed -i \"s/^maxPlayers: .*/maxPlayers: -1/\" \"$1\"' sh"
	if code := term.run("edit", "group", "lobby"); code != exit.Failed {
		t.Errorf("a refused edit ends with %d", code)
	}
	term.show("seen")
}

func TestNodesAreChangedButNeverCreatedOrPruned(t *testing.T) {
	term := newTerminal(t)
	term.server.change("node/node-1", "node-1", "node.join", `{"id": "node-1", "status": "ONLINE", "labels": {"rack": "a", "zone": "eu"},
		"room": {"cpuFactor": 1, "maxInstances": 0, "reserved": {"memoryMb": 0, "cpu": 0, "diskReservationMb": 0}}}`)
	term.write("node.yaml", "kind: Node\nname: node-1\nlabels:\n  rack: b\nroom:\n  maxInstances: 20\n")
	term.run("apply", "-f", "node.yaml", "--dry-run")
	term.run("apply", "-f", "node.yaml", "--prune")
	term.run("apply", "-f", "node.yaml")
	term.write("status.yaml", "kind: Node\nname: node-1\ncordoned: true\n")
	term.run("apply", "-f", "status.yaml")
	term.write("node-2.yaml", "kind: Node\nname: node-2\nlabels: {rack: c}\n")
	for _, verb := range []string{"apply", "create"} {
		if code := term.run(verb, "-f", "node-2.yaml"); code != exit.NotFound {
			t.Errorf("%s of a node that has not joined ends with %d", verb, code)
		}
	}
	term.interactive = true
	term.env["EDITOR"] = "sed -i -e '/rack:/d' -e 's/maxInstances: 20/maxInstances: 30/'"
	term.run("edit", "node", "node-1")
	term.run("export", "node", "node-1")
}

// show adds a file to the script.
func (term *terminal) show(name string) {
	content, err := os.ReadFile(name)
	fmt.Fprintf(&term.script, "# %s (%v)\n%s", name, err, content)
}

func TestEditShowsBothSidesOfAConflict(t *testing.T) {
	term := newTerminal(t)
	term.write("lobby.yaml", lobby)
	term.run("apply", "-f", "lobby.yaml")
	term.interactive = true
	term.write("editor", `#!/bin/sh
if [ -f seen ]; then grep -A5 Somebody "$1" >>seen; sed -i 's/^memoryMb: .*/memoryMb: 77/' "$1"; exit; fi
touch seen
sed -i 's/^minInstances: .*/minInstances: 2/' "$1"
`)
	term.env["EDITOR"] = "./editor"
	changed := false
	term.server.before = func(r *http.Request) {
		if r.Method == http.MethodPatch && !changed {
			changed = true
			term.server.change("group/lobby", "bob", "group.update", `{"minInstances": 9, "maxPlayers": 3}`)
		}
	}
	term.run("edit", "group", "lobby")
	term.show("seen")
	term.run("get", "group", "lobby", "-o", "jsonpath={['minInstances','maxPlayers','memoryMb']}")
}

func TestInitGame(t *testing.T) {
	term := newTerminal(t)
	for _, game := range []string{"minecraft", "teeworlds", "generic"} {
		term.run("init", "game", game)
		if code := term.run("apply", "-f", game+"/group.yaml"); code != exit.OK {
			t.Errorf("the group of %s is not accepted", game)
		}
	}
	if code := term.run("init", "game", "generic"); code == exit.OK {
		t.Error("a second init overwrote files")
	}
}

func TestEditKeepsWhatAConflictHeldBack(t *testing.T) {
	for _, c := range []struct {
		name, second string
		want         int
		min          string
	}{
		{"the text is left as it is", "", exit.Conflict, "9"},
		{"the question is removed", `sed -i '/remove this line/d' "$1"`, exit.OK, "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			term := newTerminal(t)
			term.write("lobby.yaml", lobby)
			term.run("apply", "-f", "lobby.yaml")
			term.interactive = true
			term.write("editor", "#!/bin/sh\nif [ -f seen ]; then "+c.second+"\nexit; fi\ntouch seen\nsed -i 's/^minInstances: .*/minInstances: 2/' \"$1\"\n")
			term.env["EDITOR"] = "./editor"
			changed := false
			term.server.before = func(r *http.Request) {
				if r.Method == http.MethodPatch && !changed {
					changed = true
					term.server.change("group/lobby", "bob", "group.update", `{"minInstances": 9}`)
				}
			}
			if code := term.run("edit", "group", "lobby"); code != c.want {
				t.Errorf("it ends with %d, want %d", code, c.want)
			}
			before := term.script.Len()
			term.run("get", "group", "lobby", "-o", "jsonpath={.minInstances}")
			if got := term.script.String()[before:]; !strings.Contains(got, "\n"+c.min+"\n") {
				t.Errorf("minInstances: %q, want %s", got, c.min)
			}
		})
	}
}
