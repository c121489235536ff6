package rundir_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/rundir"
)

func open(t *testing.T, data, below string) {
	t.Helper()
	if err := rundir.Open(data, below, "agent", false, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
}

// put writes a file of an instance; want is the expected directory.
func put(t *testing.T, data, want string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(data, "run", "pid"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(want, "pid")); err != nil {
		t.Error(err)
	}
}

func TestRunDirectoryFollowsTheSetting(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, data string){
		"at first":                   func(*testing.T, string) {},
		"after a plain one":          func(t *testing.T, data string) { open(t, data, "") },
		"after another one":          func(t *testing.T, data string) { open(t, data, t.TempDir()) },
		"after one that is gone":     func(t *testing.T, data string) { gone(t, data, t.TempDir()) },
		"after itself was forgotten": func(t *testing.T, data string) { gone(t, data, data) },
	} {
		t.Run(name, func(t *testing.T) {
			data, below := t.TempDir(), t.TempDir()
			before(t, data)
			open(t, data, below)
			put(t, data, filepath.Join(below, "agent"))
			open(t, data, below)
			put(t, data, filepath.Join(below, "agent"))
		})
		t.Run(name+", within", func(t *testing.T) {
			data := t.TempDir()
			before(t, data)
			open(t, data, "")
			put(t, data, filepath.Join(data, "run"))
		})
	}
}

// gone leaves a run directory that was lost in a restart of the host.
func gone(t *testing.T, data, below string) {
	t.Helper()
	open(t, data, below)
	if err := os.RemoveAll(filepath.Join(below, "agent")); err != nil {
		t.Fatal(err)
	}
}

func TestUsedRunDirectoryDoesNotMove(t *testing.T) {
	for name, c := range map[string]struct{ first, then string }{
		"within":    {"", t.TempDir()},
		"elsewhere": {t.TempDir(), t.TempDir()},
		"back":      {t.TempDir(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			open(t, data, c.first)
			put(t, data, filepath.Join(data, "run"))
			open(t, data, c.then)
			if _, err := os.Stat(filepath.Join(data, "run", "pid")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCopiedDataDirectoryHasItsOwnRunDirectory(t *testing.T) {
	for name, below := range map[string]string{"elsewhere": t.TempDir(), "within": ""} {
		t.Run(name, func(t *testing.T) {
			original, dir, data := t.TempDir(), t.TempDir(), t.TempDir()
			open(t, original, dir)
			put(t, original, filepath.Join(dir, "agent"))
			if err := os.Symlink(filepath.Join(dir, "agent"), filepath.Join(data, "run")); err != nil {
				t.Fatal(err)
			}
			if err := rundir.Open(data, below, "copy", true, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(data, "run", "pid")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it has the original's files: %v", err)
			}
			if _, err := os.Stat(filepath.Join(original, "run", "pid")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnusableRunDirectoryIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := rundir.Open(t.TempDir(), file, "agent", false, slog.New(slog.DiscardHandler))
	if !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "run-dir" {
		t.Errorf("got %v", err)
	}
}
