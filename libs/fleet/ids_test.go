package fleet

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestNamePatterns(t *testing.T) {
	long := strings.Repeat("a", 64)
	groups := map[string]bool{
		"lobby": true, "a": true, "_x": true, "0": true, "bed-wars_4": true, "a-": true, long[:32]: true,
		"": false, "-a": false, "Lobby": false, "a.b": false, "a/b": false, "a b": false, "a\n": false, "ä": false, long[:33]: false,
	}
	for name, ok := range groups {
		if err := GroupName(name).Validate(); (err == nil) != ok || err != nil && errs.FieldOf(err) != "name" {
			t.Errorf("group %q: %v", name, err)
		}
	}
	nodes := map[string]bool{
		"n1": true, "Host-7.example.org": true, "_": true, long[:63]: true,
		"": false, "-n": false, ".n": false, "..": false, "a/b": false, "*": false, "a\n": false, long: false,
	}
	for name, ok := range nodes {
		if err := NodeID(name).Validate(); (err == nil) != ok || err != nil && errs.FieldOf(err) != "node" {
			t.Errorf("node %q: %v", name, err)
		}
	}
	ids := map[string]bool{"abc123": true, "000000": true, "": false, "abc12": false, "abc1234": false, "ABC123": false, "abc-12": false, "abc123\n": false}
	for id, ok := range ids {
		if InstanceID(id).Valid() != ok {
			t.Errorf("instance %q: valid is not %v", id, ok)
		}
	}
}

func TestNewInstanceIDIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if id := NewInstanceID(rapid.Uint64().Draw(t, "random")); !id.Valid() {
			t.Fatalf("%q", id)
		}
	})
	if NewInstanceID(1) == NewInstanceID(2) {
		t.Error("different bits, same id")
	}
}

func TestInstanceNameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := GroupName(rapid.StringMatching(`[a-z0-9_][a-z0-9_-]{0,31}`).Draw(t, "group"))
		n := rapid.IntRange(1, 1<<40).Draw(t, "ordinal")
		group, ordinal, ok := ParseInstanceName(InstanceName(g, n))
		if !ok || group != g || ordinal != n {
			t.Fatalf("%q-%d became %q, %d, %v", g, n, group, ordinal, ok)
		}
	})
}

func TestParseInstanceNameRejectsOtherNames(t *testing.T) {
	for _, s := range []string{"", "-", "lobby", "lobby-", "-1", "lobby-0", "lobby--", "lobby-01", "lobby-+1", "lobby-x", "lobby-1x", "lobby-99999999999999999999"} {
		if g, n, ok := ParseInstanceName(s); ok {
			t.Errorf("%q became %q, %d", s, g, n)
		}
	}
}

// FuzzParseInstanceName checks that every accepted name has only one spelling.
func FuzzParseInstanceName(f *testing.F) {
	f.Add("lobby-1")
	f.Add("a--7")
	f.Add("-1")
	f.Fuzz(func(t *testing.T, name string) {
		if g, n, ok := ParseInstanceName(name); ok && InstanceName(g, n) != name {
			t.Errorf("%q became %q, %d", name, g, n)
		}
	})
}

func TestShardsAreEvenAndStable(t *testing.T) {
	const perShard = 100
	var filled [ShardCount]int
	for i := range ShardCount * perShard {
		filled[ShardOf(GroupName(fmt.Sprintf("group-%d", i)))]++
	}
	for shard, n := range filled {
		if n < perShard/2 || n > perShard*2 {
			t.Errorf("shard %d has %d of %d groups", shard, n, ShardCount*perShard)
		}
	}
	// Replicas of different builds must agree.
	for g, want := range map[GroupName]int{"": 37, "lobby": 51, "bedwars": 63, "proxy": 27} {
		if got := ShardOf(g); got != want {
			t.Errorf("ShardOf(%q) = %d, was %d", g, got, want)
		}
	}
}
