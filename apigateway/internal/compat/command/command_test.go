package command

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestWhatIsAskedIsShown(t *testing.T) {
	w := newWorld(t)
	empty := w.transcript("instances", "configs", "templates", "cluster nodes", "key list", "extension list", "node info", "config reload")
	golden(t, "empty", empty)
	w.commit(fleetOfOne()...)
	w.node.lines = []string{"one", "two", "\x1b[32mthree"}
	golden(t, "shown", w.transcript("help", "help instance", "cluster status", "cluster nodes", "node info", "node resources", "instance list", "instances",
		"instance info lobby-1", "instance logs abc123 2", "config list", "config show lobby", "template list", "extension list"))
}

func TestWhatIsDoneIsTold(t *testing.T) {
	w := newWorld(t)
	w.commit(fleetOfOne()...)
	done := w.transcript(
		`config create "arena" process "sleep 60"`, "config create arena process sleep 60", "config create x none sleep 60",
		"instance create lobby 2", "instance create lobby 51", "instance create lobby two", "instance create nowhere",
		`instance exec lobby-1 say "hi  there" \ $HOME 'x`, "instance run lobby-1 seed", "instance execute lobby-1",
		"template sync * node-1", "template sync default/* node-9", "template sync nothing", "template sync a/b/c",
		"key create ci public", "key create ci ALL", "key create other ROOT", "key list", "key delete ci", "key delete ci",
		"instance freeze lobby-1", "instance freeze abc123", "instance unfreeze lobby-1", "instance unfreeze lobby-1", "instance restart lobby-1", "instance stop abc123", "instance stop abc123", "instance kill lobby-1", "instance kill zzzzzz",
		"cluster shutdown", "extension reload", "s3 upload *", "s3 download nothing",
	)
	done = regexp.MustCompile(`ort_\w+`).ReplaceAllString(done, "ort_…")
	done = regexp.MustCompile(`instance \w{6} \(lobby-[23]\)`).ReplaceAllString(done, "instance xxxxxx (lobby-n)")
	done = regexp.MustCompile(`01[0-9a-hjkmnp-tv-z]{24}`).ReplaceAllString(done, "01…")
	golden(t, "done", done)
	if want := []string{`say "hi  there" \ $HOME 'x`, "seed"}; !slices.Equal(w.node.typed, want) {
		t.Errorf("typed %q, want %q", w.node.typed, want)
	}
	if g, ok := w.view.Snapshot().Groups.Get("arena"); !ok || g.Spec.Command != "sleep 60" || g.Spec.Scaling.Min != 1 {
		t.Errorf("made %+v", g)
	}
}

func TestWhatNobodyKnowsIsRefusedWithWhatMayBeMeant(t *testing.T) {
	w := newWorld(t)
	golden(t, "unknown", w.transcript(
		"", "   ", "instnce list", "Instance LIST", "instance lst", "instance frobnicate", "frobnicate", "hlep", "instance", "config",
		`instance info "lobby`, "instance info lobby-1 and more", "instance list some", "instance logs x 0", "help frobnicate", "exti", "configs shwo x",
		"instance info nothing", "instance info", strings.Repeat("x", 300), "instance list\x07",
	))
	if _, err := w.run(strings.Repeat("x", maxLine+1)); !errs.Is(err, errs.Invalid) {
		t.Errorf("a line without end: %v", err)
	}
}

func TestWhoLeavesIsToldApart(t *testing.T) {
	w := newWorld(t)
	for _, line := range []string{"exit", "stop", "STOP"} {
		if _, err := w.run(line); !errors.Is(err, ErrLeave) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// typical are arguments with which a command would have an effect.
var typical = map[string]string{
	"instance create": "lobby", "instance execute": "lobby-1 hi", "config show": "lobby", "config create": "x process sleep", "template sync": "*",
	"s3 upload": "*", "s3 download": "x", "key create": "x ALL", "key delete": "x", "cluster shutdown": "confirm",
}

func TestEachCommandDemandsItsPermissionsAndARefusedOneWritesNothing(t *testing.T) {
	w := newWorld(t)
	w.commit(fleetOfOne()...)
	all := w.who
	for _, c := range w.console.commands {
		args := typical[c.name]
		if args == "" && len(c.args) > 0 {
			args = "lobby-1"
		}
		for _, p := range c.needs {
			w.who = auth.Identity{User: "bob", Role: "MOST", Permissions: slices.DeleteFunc(slices.Clone(all.Permissions), func(o account.Permission) bool { return o == p })}
			before, _ := w.store.Revision(t.Context())
			_, err := w.run(c.name + " " + args)
			after, _ := w.store.Revision(t.Context())
			if !errs.Is(err, errs.Denied) || !strings.Contains(err.Error(), string(p)) || before != after {
				t.Errorf("%s without %s: %v, revision %d to %d", c.name, p, err, before, after)
			}
		}
		if len(c.needs) == 0 && c.changes {
			t.Errorf("%s changes something and anybody may", c.name)
		}
	}
}

func TestWhatChangesIsNotedAsItWasTyped(t *testing.T) {
	w := newWorld(t)
	w.commit(fleetOfOne()...)
	for _, line := range []string{"instance list", "instance stop nothing", `instance   stop "abc123"`} {
		_, _ = w.run(line)
	}
	all, _, err := store.List(t.Context(), w.store, keys.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range all {
		got = append(got, e.Username+" "+e.Action+" "+e.ResourceID+" "+e.Details)
	}
	want := []string{"ann instance.stop abc123 lobby-1", `ann command.execute instance stop instance   stop "abc123"`}
	if !slices.Equal(got, want) {
		t.Errorf("noted %q, want %q", got, want)
	}
}

func TestValuesAreHiddenFromWhoIsNotShownThem(t *testing.T) {
	w := newWorld(t)
	w.commit(fleetOfOne()...)
	w.who = auth.Identity{User: "vera", Role: auth.RoleViewer, Permissions: []account.Permission{auth.GroupsView}}
	said, err := w.run("config show lobby")
	if text := strings.Join(said, "\n"); err != nil || strings.Contains(text, "hunter2") || !strings.Contains(text, content.Hidden) {
		t.Errorf("%v %s", err, text)
	}
}

func TestNobodyMakesAKeyThatMayMoreThanTheyMay(t *testing.T) {
	w := newWorld(t)
	w.who = auth.Identity{User: "bob", Role: "CLERK", Permissions: []account.Permission{auth.TokensCreate, auth.NodesView}}
	if _, err := w.run("key create x ALL"); !errs.Is(err, errs.Denied) {
		t.Errorf("ALL: %v", err)
	}
	if _, err := w.run("key create x PUBLIC"); err != nil {
		t.Fatal(err)
	}
	for _, token := range w.view.Snapshot().APITokens.All() {
		if !slices.Equal(token.Scopes, []account.Permission{auth.NodesView}) {
			t.Errorf("it may %v", token.Scopes)
		}
	}
}

func TestALineIsCompletedByWhatTheCallerMayDoAndSee(t *testing.T) {
	w := newWorld(t)
	w.commit(fleetOfOne()...)
	if _, err := w.run("key create ci PUBLIC"); err != nil {
		t.Fatal(err)
	}
	all := w.who
	vera := auth.Identity{User: "vera", Permissions: []account.Permission{auth.InstancesView, auth.InstancesConsole}}
	stopper := auth.Identity{User: "otto", Permissions: []account.Permission{auth.InstancesStop}}
	for _, c := range []struct {
		who  auth.Identity
		line string
		want string
	}{
		{all, "", "? cluster config configs exit extension extensions help instance instances key keys node s3 stop template templates"},
		{all, "cl", "cluster"},
		{all, "  In", "instance instances"},
		{all, "instance", "instance instances"},
		{all, "instance ", "cmd command create exec execute freeze info kill list logs restart run start stop unfreeze"},
		{all, "instances st", "start stop"},
		{all, "INSTANCE ST", "start stop"},
		{all, "instance stop ", "abc123 lobby-1"},
		{all, "instance stop a", "abc123"},
		{all, "instance exec lobby-", "lobby-1"},
		{all, "instance execute lobby-1 s", ""},
		{all, "instance stop lobby-1 ", ""},
		{all, "instance list ", "all"},
		{all, "cluster shutdown ", "confirm"},
		{all, "instance create l", "lobby"},
		{all, "config show ", "lobby"},
		{all, "config create x ", "process"},
		{all, "template sync ", "* default/* default/lobby"},
		{all, "template sync default/lobby ", "node-1 node-2"},
		{all, "key delete ", "ci"},
		{all, "key create x P", "PUBLIC"},
		{all, "help key ", "create delete list"},
		{all, "help in", "instance instances"},
		{all, "? cluster s", "shutdown status"},
		{all, "frobnicate ", ""},
		{all, "instance frobnicate ", ""},
		{all, `instance stop "lob`, ""},
		{all, strings.Repeat("x", maxLine+1), ""},
		{vera, "", "? exit help instance instances stop"},
		{vera, "instance ", "info list logs"},
		{vera, "instance stop ", ""},
		{vera, "instance logs l", "lobby-1"},
		{stopper, "instance stop ", ""}, // completion must not reveal names the caller may not see
		{stopper, "instances", ""},
	} {
		if got := strings.Join(w.console.Complete(c.who, c.line), " "); got != c.want {
			t.Errorf("%s, %.40q: %q, want %q", c.who.User, c.line, got, c.want)
		}
	}
}

func TestTheNamesOfALargeFleetAreGoneThroughAndNotKept(t *testing.T) {
	many := make([]string, 20_000)
	for n := range many {
		many[n] = fmt.Sprintf("Lobby-%05d", (n*7_919)%len(many)) // each once, unordered
	}
	words := slices.Concat(many, many, []string{"Lobby-", "lobby x", `lobby's`, "", "a"})
	sorted := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(many), "Lobby-"))))
	if got := offered(slices.Values(words), "lOBBY"); !slices.Equal(got, sorted[:MaxOffered]) {
		t.Errorf("%d are offered: %q", len(got), got)
	}
	few, all := many[:2*MaxOffered], many
	cost := func(words []string) float64 {
		return testing.AllocsPerRun(3, func() { offered(slices.Values(words), "") })
	}
	for n, word := range many { // lowering the case of a capital letter allocates
		many[n] = strings.ToLower(word)
	}
	if a, b := cost(few), cost(all); a != b {
		t.Errorf("of %d words it costs %v allocations, of %d %v", len(few), a, len(all), b)
	}
}

func TestOutputIsBoundedAndEndsWithWhoReadsIt(t *testing.T) {
	var said []string
	c := &call{Session: Session{Say: func(line string) error { said = append(said, line); return nil }}}
	for range MaxLines + 10 {
		if err := c.say("a\nb\r\nc"); err != nil {
			t.Fatal(err)
		}
	}
	if len(said) != MaxLines || said[0] != "a b c" || said[MaxLines-1] != "… more lines are left out" {
		t.Errorf("%d lines, %q, %q", len(said), said[0], said[len(said)-1])
	}
	w := newWorld(t)
	gone := errors.New("gone")
	err := w.console.Run(context.Background(), Session{By: txn.Actor{User: "ann"}, Who: w.who, Say: func(string) error { return gone }}, "help")
	if !errors.Is(err, gone) {
		t.Errorf("ended with %v", err)
	}
}

func FuzzNoLineIsTooMuch(f *testing.F) {
	for _, line := range []string{`a "b c" d`, `'`, `\`, `a\ b 'c"d' ""`, "a\tb", `"\""`} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		r := &reader{line: line}
		words, err := r.words()
		if err == nil && r.at != len(line) {
			t.Errorf("%q: %q and then stopped at %d", line, words, r.at)
		}
		_ = unquoted(line)
		if _, typed, ok := begun(line); ok && err != nil {
			t.Errorf("%q goes on after %q, and cannot be read", line, typed)
		}
	})
}

func TestWordsAreReadAsAShellWould(t *testing.T) {
	for line, want := range map[string][]string{
		`a  b	c`: {"a", "b", "c"}, `a "b c" 'd "e'`: {"a", "b c", `d "e`}, `"" x`: {"", "x"},
		`a\ b "c\"d" 'e\f'`: {"a b", `c"d`, `e\f`}, `x"y z"w`: {"xy zw"}, `a\`: {`a\`},
	} {
		if got, err := (&reader{line: line}).words(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q %v, want %q", line, got, err, want)
		}
	}
}

// words returns all remaining words.
func (r *reader) words() ([]string, error) {
	var out []string
	for {
		w, ok, err := r.word()
		if err != nil || !ok {
			return out, err
		}
		out = append(out, w)
	}
}
