package configurations_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
	"github.com/orreryhq/orrery/templatesvc/internal/sources/configurations"
)

// holding reads a directory with these files.
func holding(t *testing.T, files map[string]string, seen string) (*sources.Holding, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return configurations.From(dir)(t.Context(), sources.Request{Seen: seen})
}

func TestEachFileIsAConfigurationInTheWordsOfUniverse(t *testing.T) {
	files := map[string]string{
		"lobby.json": "\ufeff{\n  \"ramMB\": \"512\"\n}", "b.json": `{"name":"arena","command":"run"}`,
		".draft.json": "{", "notes.txt": "x", "old.json~": "{",
	}
	h, err := holding(t, files, "")
	if err != nil || len(h.Groups) != 2 || len(h.Templates) != 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	arena, lobby := h.Groups[0], h.Groups[1]
	if arena.Group != "arena" || arena.File != "b.json" || !arena.Universe || lobby.Group != "lobby" || string(lobby.Spec) != `{"ramMB":"512"}` {
		t.Errorf("%+v, %+v", arena, lobby)
	}
	files["lobby.json"] = "{}"
	if other, err := holding(t, files, h.Revision); err != nil || other == nil || other.Revision == h.Revision {
		t.Errorf("a change is not seen: %+v, %v", other, err)
	}
}

func TestWhatCannotBeReadWhollyIsAnError(t *testing.T) {
	many := map[string]string{}
	for i := range 8<<20/compose.MaxDeclaredBytes + 1 {
		many[fmt.Sprintf("c%d.json", i)] = `{"command":"` + strings.Repeat("x", compose.MaxDeclaredBytes-14) + `"}`
	}
	for name, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"nothing":              {nil, "its earlier declarations stay"},
		"half a file":          {map[string]string{"a.json": "{}", "b.json": `{"name":`}, "b.json is not a JSON object"},
		"an empty file":        {map[string]string{"a.json": ""}, "a.json is not a JSON object"},
		"a list":               {map[string]string{"a.json": "[]"}, "a.json is not a JSON object: it does not begin with {"},
		"null":                 {map[string]string{"a.json": "null"}, "a.json is not a JSON object: it does not begin with {"},
		"a number as name":     {map[string]string{"a.json": `{"name":1}`}, "a.json: name must be text"},
		"a line in its name":   {map[string]string{"a\n\x1bb.json": `{"name":"a"}`}, `"a\n\x1bb.json" has control characters`},
		"a name that is none":  {map[string]string{"a.json": `{"name":"../x"}`}, "a.json"},
		"a file name of none":  {map[string]string{"A B.json": `{}`}, "A B.json"},
		"two of one name":      {map[string]string{"a.json": "{}", "b.json": `{"name":"a"}`}, "b.json declares the configuration a a second time, after a.json"},
		"much in all":          {many, "more than 8 MiB together"},
		"a file that is large": {map[string]string{"a.json": `{"command":"` + strings.Repeat("x", compose.MaxDeclaredBytes) + `"}`}, "a.json is larger"},
	} {
		if h, err := holding(t, c.files, ""); err == nil || h != nil || !strings.Contains(errs.MessageOf(err), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := configurations.From("")(t.Context(), sources.Request{}); err == nil || !strings.Contains(err.Error(), "sources.configurations-dir") {
		t.Errorf("no directory: %v", err)
	}
	if _, err := configurations.From(filepath.Join(t.TempDir(), "none"))(t.Context(), sources.Request{}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

func TestADirectoryIsToldFromItsCopiesAndFromItselfAtAnotherTime(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	look := func(dir string, r sources.Request) *sources.Holding {
		t.Helper()
		h, err := configurations.From(dir)(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	put := func(dir, name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(dir, "a.json")
	put(other, "a.json")
	was := look(dir, sources.Request{})
	known := sources.Request{Seen: was.Revision, At: was.Place}
	if h := look(dir, known); h != nil {
		t.Errorf("what is known is brought again: %+v", h)
	}
	if h := look(other, known); h == nil || h.Revision != was.Revision || h.Place == was.Place {
		t.Errorf("a copy is %+v, like %+v", h, was)
	}
	put(dir, "a.json") // written in place: no name appeared or disappeared
	if h := look(dir, sources.Request{}); h.Place != was.Place || h.Moment != was.Moment {
		t.Errorf("%+v, not %+v", h, was)
	}
	// File times may not advance for some milliseconds.
	await.That(t, "another moment", func() string {
		put(dir, "b.json")
		err := os.Remove(filepath.Join(dir, "b.json"))
		h := look(dir, sources.Request{})
		return await.Unless(err == nil && h.Place == was.Place && h.Revision == was.Revision && h.Moment != was.Moment, "%+v, %v", h, err)
	})
}

func TestWhatIsNoFileOfTheDirectoryIsToldAndNothingWaitsForIt(t *testing.T) {
	dir := t.TempDir()
	look := func(ctx context.Context) error {
		_, err := configurations.From(dir)(ctx, sources.Request{})
		return err
	}
	pipe := filepath.Join(dir, "pipe.json")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- look(t.Context()) }()
	select {
	case err := <-ended:
		if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), "pipe.json is not a file") {
			t.Errorf("a pipe: %v", err)
		}
	case <-time.After(await.Patience):
		f, err := os.OpenFile(pipe, os.O_WRONLY, 0) // unblocks it
		t.Fatalf("it waits for a writer of a pipe: %v, %v", <-ended, errors.Join(err, f.Close()))
	}
	if err := errors.Join(os.Remove(pipe), os.Mkdir(filepath.Join(dir, "sub.json"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := look(t.Context()); !strings.Contains(errs.MessageOf(err), "sub.json is not a file") {
		t.Errorf("a directory: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := look(ctx); !errs.Is(err, errs.Canceled) {
		t.Errorf("nobody waits for it any more: %v", err)
	}
}

func TestNoLinkLeadsOutOfTheDirectory(t *testing.T) {
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret.json")
	if err := os.WriteFile(secret, []byte(`{"command":"secret"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "a.json")); err != nil {
		t.Fatal(err)
	}
	if h, err := configurations.From(dir)(t.Context(), sources.Request{}); err == nil {
		t.Errorf("it is read: %+v", h.Groups)
	}
}
