package claim

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func one(change func(*Claim)) Claim {
	c := Claim{Instance: "aaaaaa", Generation: 2, Epoch: 10, Rev: 20, PlacedAt: noon, Node: "n1", DataUUID: "u1"}
	if change != nil {
		change(&c)
	}
	return c
}

// other returns a change to another instance on another node.
func other(change func(*Claim)) func(*Claim) {
	return func(c *Claim) {
		c.Instance, c.Generation, c.Node, c.DataUUID = "bbbbbb", 9, "n2", "u2"
		change(c)
	}
}

func take(t *testing.T, dir string, c Claim) {
	t.Helper()
	l, err := Take(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
}

func TestClaimYieldsToLaterClaims(t *testing.T) {
	cases := []struct {
		name   string
		change func(*Claim)
		may    bool
	}{
		{"the same claim, as for a restart in place", func(*Claim) {}, true},
		{"a later generation", func(c *Claim) { c.Generation, c.Epoch = 3, 9 }, true},
		{"a later generation elsewhere", func(c *Claim) { c.Generation, c.Node, c.DataUUID = 3, "n2", "u2" }, true},
		{"an earlier generation", func(c *Claim) { c.Generation, c.Epoch = 1, 99 }, false},
		{"the same generation, placed later", func(c *Claim) { c.Epoch, c.Node, c.DataUUID = 11, "n2", "u2" }, true},
		{"the same generation, placed earlier", func(c *Claim) { c.Epoch = 9 }, false},
		{"the same generation on another node", func(c *Claim) { c.Node = "n2" }, false},
		{"the same generation in another data directory", func(c *Claim) { c.DataUUID = "u2" }, false},
		{"another instance placed under a later owner", func(c *Claim) { c.Instance, c.Generation, c.Epoch = "bbbbbb", 1, 11 }, true},
		{"another instance placed later elsewhere, with a wrong clock", other(func(c *Claim) { c.Rev, c.PlacedAt = 21, noon.Add(-1) }), true},
		{"another instance placed earlier elsewhere, with a wrong clock", other(func(c *Claim) { c.Rev, c.PlacedAt = 19, noon.Add(1) }), false},
		{"another instance placed later elsewhere by the clock", other(func(c *Claim) { c.Rev, c.PlacedAt = 0, noon.Add(1) }), true},
		{"another instance placed earlier elsewhere by the clock", other(func(c *Claim) { c.Rev, c.PlacedAt = 0, noon.Add(-1) }), false},
		{"another instance placed elsewhere under an earlier owner", other(func(c *Claim) { c.Epoch, c.PlacedAt = 9, noon.Add(1) }), false},
		{"another instance of this data directory, with a rebuilt etcd", func(c *Claim) { c.Instance, c.Generation, c.Epoch, c.Rev = "bbbbbb", 1, 2, 3 }, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			take(t, dir, one(nil))
			late := one(c.change)
			l, err := Take(dir, late)
			if err == nil {
				l.Release()
			}
			if (err == nil) != c.may {
				t.Fatalf("taken: %v", err)
			}
			if err != nil && (!errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), late.String()) ||
				!strings.Contains(errs.MessageOf(err), one(nil).String())) {
				t.Errorf("it does not name both: %v", err)
			}
		})
	}
}

func TestClaimsAreOrdered(t *testing.T) {
	draw := func(t *rapid.T, name string) Claim {
		return Claim{
			Instance:   rapid.SampledFrom([]fleet.InstanceID{"a", "b"}).Draw(t, name+" instance"),
			Generation: rapid.Int64Range(1, 3).Draw(t, name+" generation"), Epoch: rapid.Int64Range(0, 2).Draw(t, name+" epoch"),
			PlacedAt: noon.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, name+" placed"))),
			Node:     rapid.SampledFrom([]fleet.NodeID{"n1", "n2"}).Draw(t, name+" node"),
			DataUUID: rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, name+" directory"), Rev: rapid.Int64Range(0, 2).Draw(t, name+" revision"),
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		same := a.Instance == b.Instance && a.Generation == b.Generation && a.Epoch == b.Epoch && a.Node == b.Node
		same = same || a.Instance != b.Instance && a.DataUUID == b.DataUUID // the file lock decides
		if a.yields(b) && b.yields(a) && !same {
			t.Fatalf("%+v and %+v follow each other", a, b)
		}
	})
}

func TestLockOfALivingRunBlocksOthers(t *testing.T) {
	dir := t.TempDir()
	l, err := Take(dir, one(nil))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	cmd.ExtraFiles = []*os.File{l.File()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	l.Pass()
	later := one(func(c *Claim) { c.Generation = 3 })
	if _, err := Take(dir, later); !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), "still hold") {
		t.Errorf("taken beside a living run: %v", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	take(t, dir, later)
	b, err := os.ReadFile(filepath.Join(dir, FileName))
	if got, ok := parse(b); err != nil || !ok || got != later || len(b) != size {
		t.Errorf("the file says %q, %v", b, err)
	}
}

func TestCorruptLockFileIsNamed(t *testing.T) {
	whole := t.TempDir()
	take(t, whole, one(nil))
	good, err := os.ReadFile(filepath.Join(whole, FileName))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]func(path string) error{
		"garbage":   func(p string) error { return os.WriteFile(p, []byte("garbage"), 0o600) },
		"cut short": func(p string) error { return os.WriteFile(p, good[:40], 0o600) },
		"no claim":  func(p string) error { return os.WriteFile(p, []byte("{}"), 0o600) },
		"a link":    func(p string) error { return os.Symlink(filepath.Join(whole, "elsewhere"), p) },
		"a folder":  func(p string) error { return os.Mkdir(p, 0o700) },
	}
	for name, make := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), FileName)
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			if _, err := Take(filepath.Dir(path), one(nil)); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), path) {
				t.Errorf("taken: %v", err)
			}
		})
	}
	if _, err := os.Lstat(filepath.Join(whole, "elsewhere")); !os.IsNotExist(err) {
		t.Error("a link was followed")
	}
}

func TestEmptyLockFileIsNoClaim(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	take(t, dir, one(nil))
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"instance":"aaaaaa","generation":1,"node":"n"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, ok := parse(b); ok && (c.Instance == "" || c.Generation < 1) {
			t.Errorf("%q reads as %+v", b, c)
		}
	})
}
