package presence_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/presence"
)

func player(n int) players.PlayerID {
	return players.PlayerID(fmt.Sprintf("00000000-0000-0000-0000-%012d", n))
}

func joined(n int, by fleet.InstanceID) players.Presence {
	return players.Presence{Player: player(n), Name: fmt.Sprint("p", n), By: by, Said: int64(n)}
}

// taken returns all changes, by part.
func taken(b *presence.Registry) map[int][]players.Presence {
	out := map[int][]players.Presence{}
	for {
		n, players, ok := b.TakeChanged()
		if !ok {
			return out
		}
		out[n] = players
	}
}

func TestJoinAndLeaveChangeOnePart(t *testing.T) {
	b := presence.NewRegistry()
	for n := range 500 {
		if _, err := b.Join(joined(n, "aaaaaa")); err != nil {
			t.Fatal(err)
		}
	}
	if all := taken(b); len(all) != players.PresenceParts || b.Changed() {
		t.Errorf("%d parts of 500 players", len(all))
	}
	if _, err := b.Join(joined(7, "bbbbbb")); err != nil {
		t.Fatal(err)
	}
	one := taken(b)
	if part := one[player(7).Part()]; len(one) != 1 || !slices.ContainsFunc(part, func(p players.Presence) bool { return p.By == "bbbbbb" }) {
		t.Errorf("one who joins changes %v", one)
	}
	b.Leave("aaaaaa", player(7))
	b.Leave("aaaaaa", player(7))
	b.Leave("cccccc", player(8))
	if one := taken(b); len(one) != 1 {
		t.Errorf("one who leaves changes %d parts", len(one))
	}
	b.Drop("aaaaaa")
	if b.Count("aaaaaa") != 0 || b.Count("bbbbbb") != 1 {
		t.Errorf("%d and %d are left", b.Count("aaaaaa"), b.Count("bbbbbb"))
	}
	left := 0
	for _, part := range taken(b) {
		left += len(part)
	}
	if left != 1 {
		t.Errorf("%d are left in the parts", left)
	}
}

func TestPartIsBounded(t *testing.T) {
	b := presence.NewRegistry()
	var refused error
	for n := 0; refused == nil && n < 2*players.PresenceParts*players.MaxPresencePart; n++ {
		if player(n).Part() == 3 {
			_, refused = b.Join(joined(n, "aaaaaa"))
		}
	}
	if !errs.Is(refused, errs.Exhausted) || b.Count("aaaaaa") != players.MaxPresencePart {
		t.Errorf("%d are taken: %v", b.Count("aaaaaa"), refused)
	}
}

func TestFileIsLoadedDespiteDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "players")
	there := map[int]bool{}
	all := func() (out []players.Presence) {
		for n := range there {
			out = append(out, joined(n, "aaaaaa"))
		}
		return out
	}
	f := presence.NewFile(path)
	if _, told := f.Load(); told {
		t.Error("nothing was told yet")
	}
	for n := range 5000 {
		there[n] = true
		if err := f.Joined(joined(n, "aaaaaa"), all); err != nil {
			t.Fatal(err)
		}
		if n >= 10 {
			delete(there, n-10)
			if err := f.Left(player(n-10), all); err != nil {
				t.Fatal(err)
			}
		}
		if n == 2500 { // as if an agent was killed within a write
			torn, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := torn.WriteString(`{"joined":{"uu`); err != nil {
				t.Fatal(err)
			}
			_ = torn.Close()
			f = presence.NewFile(path)
			if players, _ := f.Load(); len(players) != 10 {
				t.Errorf("%d are read of a torn file", len(players))
			}
		}
	}
	next := presence.NewFile(path)
	players, told := next.Load()
	if info, err := os.Stat(path); err != nil || info.Size() > 200<<10 || len(players) != 10 || !told {
		t.Errorf("%d players, %+v, %v", len(players), info, err)
	}
	if err := next.Forget(); err != nil {
		t.Error(err)
	}
	if err := next.Forget(); err != nil {
		t.Error(err)
	}
}
