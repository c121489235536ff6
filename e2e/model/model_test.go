package model

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var (
	large  = flag.Bool("large", false, "explore the large fleets as well")
	update = flag.Bool("update", false, "write testdata/traces.txt")
)

// enough exceeds the number of states of every small fleet.
const enough = 400_000

// The small fleets. Each demonstrates some of the safeguards and is explored completely.
var (
	takeover = Config{Schedulers: 2, Shards: 1, Nodes: 2, Instances: 1, Owners: true, InForce: All}
	answers  = Config{Schedulers: 1, Shards: 1, Nodes: 2, Instances: 1, Owners: true, LostAnswers: true, InForce: All}
	room     = Config{Schedulers: 2, Shards: 2, Nodes: 1, Instances: 2, LostAnswers: true, InForce: All}
	stops    = Config{Schedulers: 1, Shards: 1, Nodes: 1, Instances: 1, Stops: true, LostAnswers: true, InForce: All}
	loss     = Config{Schedulers: 1, Enforcers: 1, Shards: 1, Nodes: 2, Instances: 1, Agents: true, Spare: true, InForce: All}
	ordinary = Config{Schedulers: 1, Enforcers: 1, Shards: 1, Nodes: 1, Instances: 1, Agents: true, Ordinary: true, InForce: All}
	// rivals has two enforcers at work at once, which the ownership rules out.
	rivals = Config{Schedulers: 1, Enforcers: 2, Shards: 1, Nodes: 2, Instances: 1, Agents: true, Spare: true, InForce: All}
)

func explore(t *testing.T, c Config, limit int) Result {
	t.Helper()
	r := Explore(New(c), limit)
	t.Logf("%d states, %d steps, %d deep", r.States, r.Steps, r.Depth)
	return r
}

func keepsItsRules(t *testing.T, c Config, limit int) {
	t.Helper()
	r := explore(t, c, limit)
	if r.Broken != "" {
		t.Errorf("broken: %s\n%s", r.Broken, told(r))
	}
	if r.Cut {
		t.Errorf("not explored to the end within %d states", limit)
	}
}

func told(r Result) string {
	var b strings.Builder
	for n, s := range r.Trace {
		fmt.Fprintf(&b, "  %2d. %s\n", n+1, s)
	}
	return b.String()
}

func TestWithAllSafeguardsNoRuleIsEverBroken(t *testing.T) {
	for name, c := range map[string]Config{
		"two schedulers and one shard": takeover, "lost answers": answers, "two shards and one room": room,
		"stops": stops, "a lost node": loss, "a lost node and what is not exclusive": ordinary,
	} {
		t.Run(name, func(t *testing.T) { keepsItsRules(t, c, enough) })
	}
}

func TestNoRuleIsEverBrokenInLargeFleets(t *testing.T) {
	if !*large {
		t.Log("run with -large, or make model")
		return
	}
	both := takeover
	both.LostAnswers = true
	moving := loss
	moving.Spare = false
	unfenced := without(rivals, Fence)
	unfenced.HarmOnly = true
	for _, e := range []struct {
		name string
		c    Config
	}{
		{"two schedulers, one shard, lost answers", both},
		{"two nodes that both get lost", moving},
		{"a lost node and two enforcers", rivals},
		{"a lost node and two enforcers that no fence keeps apart", unfenced},
	} {
		t.Run(e.name, func(t *testing.T) { keepsItsRules(t, e.c, 8_000_000) })
	}
}

// needed lists what breaks without each safeguard, in the smallest fleet that shows it.
var needed = []struct {
	without Safeguard
	in      Config
	breaks  string
	harm    bool // what follows without the rule about who may write
}{
	{Fence, takeover, OnlyOwnersWrite, false},
	{Fence, takeover, PlacedOnce, true},
	{ClaimFree, takeover, PlacedOnce, false},
	{ViewPastOwnership, takeover, PlacedOnce, false},
	{ViewPastCommit, answers, PlacedOnce, false},
	{Settle, answers, PlacedOnce, false},
	{AllocUnchanged, answers, PlacedOnce, false},
	{AllocUnchanged, room, RoomOnce, false},
	{IntentUnchanged, stops, NothingStoppedIsPlaced, false},
	{MoveUnchanged | MoveRejoin, loss, OneCopy, false},
	{MoveAsked | MoveRejoin, loss, OneCopy, false},
	{AgainMargin, loss, OneCopy, false},
	{AgainTTL, loss, OneCopy, false},
	{AgainRejoin | MoveRejoin, loss, OneCopy, false},
	{OfflineMissing, ordinary, OfflineMeansLost, false},
	{OfflineMissing, ordinary, Trapped, true},
	{OfflineUnchanged, loss, StatusGoesOn, false},
	{StatusFence, loss, OnlySessionsReport, false},
	{StatusUnchanged, loss, StatusGoesOn, false},
	{ReleaseEmpty, loss, OneCopy, false},
	{Deadline | Guard, loss, OneCopy, false},
	{Guard, loss, OneCopy, false},
	{StartSeen | StartClaimed, loss, OneCopy, false},
	{StartClaimed | MoveRejoin, loss, OneCopy, false},
	{ClaimPlaced, loss, OneCopy, false},
	{StartChecked, loss, OneCopy, false},
}

// spare lists the safeguards that can all be left out without breaking a rule of the model.
// docs/reference/protocol.md says what they are for.
var spare = []struct {
	without Safeguard
	in      Config
}{
	{PlacementUnchanged, takeover},
	{PlacementUnchanged, answers},
	{PlacementUnchanged | MoveMissing | AgainUnchanged | MoveRejoin | StartSeen, loss},
	{MoveUnchanged | MoveAsked | AgainRejoin | StartClaimed, loss},
}

func TestWithoutASafeguardARuleIsBroken(t *testing.T) {
	var all strings.Builder
	for _, n := range needed {
		title := fmt.Sprintf("without %s: %s", n.without, n.breaks)
		t.Run(title, func(t *testing.T) {
			c := n.in
			c.InForce, c.HarmOnly = All&^n.without, n.harm
			r := explore(t, c, enough)
			if r.Broken != n.breaks {
				t.Errorf("broken: %q, want %q\n%s", r.Broken, n.breaks, told(r))
			}
			t.Logf("\n%s", told(r))
			fmt.Fprintf(&all, "%s\n%s\n", title, told(r))
		})
	}
	const path = "testdata/traces.txt"
	if *update {
		if err := os.WriteFile(path, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if all.String() != string(want) {
		t.Errorf("the traces are not those of %s: look at them, and run with -update", path)
	}
}

func TestSomeSafeguardsAreNeededByNoRuleOfTheModel(t *testing.T) {
	for _, n := range spare {
		t.Run(n.without.String(), func(t *testing.T) {
			c := n.in
			c.InForce, c.HarmOnly = All&^n.without, true
			keepsItsRules(t, c, enough)
		})
	}
}

func TestEverySafeguardIsShownToBeNeededOrSpare(t *testing.T) {
	var shown Safeguard
	for _, n := range needed {
		shown |= n.without
	}
	for _, n := range spare {
		shown |= n.without
	}
	if left := All &^ shown; left != 0 {
		t.Errorf("nothing is shown of: %s", left)
	}
}

func TestTheProtocolPageNamesEverySafeguard(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for n, name := range names {
		if 1<<n > All || !strings.Contains(string(page), name) {
			t.Errorf("docs/reference/protocol.md does not tell of %q", name)
		}
	}
}

func TestForgettingChangesNoVerdict(t *testing.T) {
	for name, c := range map[string]Config{
		"stops": stops, "stops, intent": without(stops, IntentUnchanged),
		"answers": fixed(answers), "answers, settling": without(fixed(answers), Settle), "answers, past commit": without(fixed(answers), ViewPastCommit),
	} {
		t.Run(name, func(t *testing.T) {
			plain := c
			plain.Plain = true
			short, long := explore(t, c, enough), explore(t, plain, enough)
			if short.Broken != long.Broken || short.Cut || long.Cut {
				t.Errorf("forgetting %q, keeping all %q", short.Broken, long.Broken)
			}
		})
	}
}

func without(c Config, g Safeguard) Config { c.InForce &^= g; return c }

func fixed(c Config) Config { c.Owners = false; return c }
