package secrets_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/nodeagent/internal/content/secrets"
)

const clusterSecret = "cluster-secret"

// shelf is a fake store that can be unavailable.
type shelf struct {
	all  map[string]content.Secret
	away bool
}

func (s *shelf) read(_ context.Context, name string) (content.Secret, error) {
	if s.away {
		return content.Secret{}, errs.New(errs.Unavailable, "away")
	}
	one, ok := s.all[name]
	if !ok {
		return one, errs.New(errs.NotFound, "none")
	}
	return one, nil
}

func box(t *testing.T, about string) seal.Box {
	t.Helper()
	return seal.NewBox(clusterSecret, content.SecretsKind).About(about)
}

func (s *shelf) put(t *testing.T, name string, values map[string]string) {
	t.Helper()
	b, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	s.all[name] = content.Secret{Name: name, Sealed: box(t, compose.AboutStored(name)).Seal(b)}
}

func sealed(t *testing.T, about, value string) string {
	return "sealed:" + base64.RawURLEncoding.EncodeToString(box(t, about).Seal([]byte(value)))
}

func TestReferencesAreResolvedOrNamedInErrors(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "db"), "of the file\n")
	write(filepath.Join(outside, "other"), "outside")
	write(filepath.Join(dir, "large"), strings.Repeat("x", content.MaxSecretBytes+1))
	write(filepath.Join(dir, "binary"), "a\x00b")
	for link, to := range map[string]string{"out": filepath.Join(outside, "other"), "up": "../" + filepath.Base(outside) + "/other", "in": "db"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	store := &shelf{all: map[string]content.Secret{}}
	store.put(t, "db", map[string]string{"": "plain", "user": "somebody"})
	store.put(t, "keyed", map[string]string{"user": "somebody"})
	store.all["moved"] = store.all["db"] // sealed for another name
	r, err := secrets.New(secrets.Config{
		Read: store.read, Secret: clusterSecret, StateDir: t.TempDir(), Dir: dir, EnvPrefix: "ALLOWED_", Log: slog.New(slog.DiscardHandler),
		Env: func(name string) (string, bool) { return "of " + name, name != "ALLOWED_NOT" },
	})
	if err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]any{
		"secret:db":        "plain",
		"secret:db#user":   "somebody",
		"secret:keyed":     errs.NotFound,
		"secret:db#none":   errs.NotFound,
		"secret:none":      errs.NotFound,
		"secret:moved":     errs.Invalid,
		"secret:../db":     errs.Invalid,
		"file:db":          "of the file",
		"file:in":          "of the file",
		"file:none":        errs.NotFound,
		"file:out":         errs.Denied,
		"file:up":          errs.Denied,
		"file:large":       errs.Invalid,
		"file:binary":      errs.Invalid,
		"env:ALLOWED_DB":   "of ALLOWED_DB",
		"env:ALLOWED_NOT":  errs.NotFound,
		"env:PATH":         errs.Denied,
		"hunter2":          errs.Invalid,
		"sealed:not base6": errs.Invalid,
		sealed(t, compose.AboutGroup("lobby", "DB"), "of the group"):    "of the group",
		sealed(t, compose.AboutTemplate("DB"), "of the template"):       "of the template",
		sealed(t, compose.AboutGroup("lobby", "OTHER"), "of another"):   errs.Invalid,
		sealed(t, compose.AboutGroup("arena", "DB"), "of another"):      errs.Invalid,
		sealed(t, compose.AboutStored("DB"), "of another kind of them"): errs.Invalid,
	} {
		got, err := r.Values(t.Context(), "aaaaaa", "lobby", map[string]string{"DB": ref})
		if kind, refused := want.(errs.Kind); refused {
			if !errs.Is(err, kind) || !strings.Contains(errs.MessageOf(err), "DB") {
				t.Errorf("%s: %v, %v; want %v", ref, got, err, kind)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "of another")) {
				t.Errorf("%s: a value is told: %v", ref, err)
			}
			continue
		}
		if err != nil || got["DB"] != want {
			t.Errorf("%s: %q, %v; want %q", ref, got, err, want)
		}
	}
}

func TestFilesAndEnvironmentAreDisabledByDefault(t *testing.T) {
	r, err := secrets.New(secrets.Config{Secret: clusterSecret, StateDir: t.TempDir(), Env: os.LookupEnv, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"file:db", "env:PATH"} {
		if _, err := r.Values(t.Context(), "aaaaaa", "lobby", map[string]string{"DB": ref}); !errs.Is(err, errs.Denied) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func TestASecretOfOtherGroupsIsDenied(t *testing.T) {
	store := &shelf{all: map[string]content.Secret{}}
	store.put(t, "db", map[string]string{"": "recognisable"})
	labels := map[fleet.GroupName]map[string]string{"bedwars": {"game": "bedwars"}}
	r, err := secrets.New(secrets.Config{
		Read: store.read, Secret: clusterSecret, StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Labels: func(_ context.Context, g fleet.GroupName) (map[string]string, error) { return labels[g], nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	refs := map[string]string{"DB": "secret:db"}
	// The node has a copy from the time when all groups could use it.
	if _, err := r.Values(t.Context(), "aaaaaa", "lobby", refs); err != nil {
		t.Fatal(err)
	}
	one := store.all["db"]
	if one.Selector, err = label.ParseSelector("game=bedwars"); err != nil {
		t.Fatal(err)
	}
	store.all["db"] = one
	if got, err := r.Values(t.Context(), "aaaaaa", "lobby", refs); !errs.Is(err, errs.Denied) || !strings.Contains(err.Error(), "game=bedwars") {
		t.Errorf("another group: %v, %v", got, err)
	}
	store.away = true
	if got, err := r.Values(t.Context(), "aaaaaa", "lobby", refs); !errs.Is(err, errs.Unavailable) {
		t.Errorf("another group, without etcd: %v, %v", got, err)
	}
	store.away = false
	if got, err := r.Values(t.Context(), "bbbbbb", "bedwars", refs); err != nil || got["DB"] != "recognisable" {
		t.Errorf("a group of the selector: %v, %v", got, err)
	}
}

func TestStoredSecretsAreUsedWithoutEtcd(t *testing.T) {
	keep := t.TempDir()
	store := &shelf{all: map[string]content.Secret{}}
	store.put(t, "db", map[string]string{"": "recognisable"})
	refs := map[string]string{"DB": "secret:db"}
	resolver := func(secret string) *secrets.Resolver {
		r, err := secrets.New(secrets.Config{Read: store.read, Secret: secret, StateDir: keep, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := resolver(clusterSecret)
	store.away = true
	if _, err := r.Values(t.Context(), "aaaaaa", "lobby", refs); !errs.Is(err, errs.Unavailable) {
		t.Errorf("nothing was stored: %v", err)
	}
	store.away = false
	if _, err := r.Values(t.Context(), "aaaaaa", "lobby", refs); err != nil {
		t.Fatal(err)
	}
	if err := r.Keep("aaaaaa", "first", map[string]string{"DB": "recognisable"}); err != nil {
		t.Fatal(err)
	}
	store.put(t, "db", map[string]string{"": "changed"})
	store.away = true
	if got, err := resolver(clusterSecret).Values(t.Context(), "aaaaaa", "lobby", refs); err != nil || got["DB"] != "recognisable" {
		t.Errorf("after a restart without the store: %v, %v", got, err)
	}
	if _, err := resolver("another").Values(t.Context(), "aaaaaa", "lobby", refs); !errs.Is(err, errs.Invalid) {
		t.Errorf("with another cluster secret: %v", err)
	}
	if _, err := r.Values(t.Context(), "bbbbbb", "lobby", refs); !errs.Is(err, errs.Unavailable) {
		t.Errorf("another instance: %v", err)
	}
	err := filepath.WalkDir(keep, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), "recognisable") {
			t.Errorf("%s has the value", path)
		}
		fi, _ := d.Info()
		if fi.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, fi.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	store.away = false
	delete(store.all, "db")
	if _, err := r.Values(t.Context(), "aaaaaa", "lobby", refs); !errs.Is(err, errs.NotFound) {
		t.Errorf("a removed secret: %v", err)
	}
	for range 2 {
		if err := r.Forget("aaaaaa"); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(keep); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestBuildValuesSurviveARestart(t *testing.T) {
	keep := t.TempDir()
	resolver := func(secret string) *secrets.Resolver {
		r, err := secrets.New(secrets.Config{Secret: secret, StateDir: keep, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r, refs := resolver(clusterSecret), map[string]string{"DB": "env:DB"}
	if _, err := r.Recall("aaaaaa", "first", refs); !errs.Is(err, errs.NotFound) {
		t.Errorf("before anything was stored: %v", err)
	}
	if err := r.Keep("bbbbbb", "first", nil); err != nil {
		t.Error(err)
	}
	if _, err := r.Recall("bbbbbb", "first", nil); err != nil {
		t.Errorf("without secrets: %v", err)
	}
	first, second := map[string]string{"DB": "one"}, map[string]string{"DB": "two"}
	if err := errors.Join(r.Keep("aaaaaa", "first", first), r.Keep("aaaaaa", "second", second)); err != nil {
		t.Fatal(err)
	}
	for build, want := range map[string]map[string]string{"first": first, "second": second} {
		k, err := resolver(clusterSecret).Recall("aaaaaa", build, refs)
		if err != nil || cmp.Diff(want, k.Values) != "" || cmp.Diff([]map[string]string{first, second}, k.All) != "" {
			t.Errorf("%s: %v, %v", build, k, err)
		}
	}
	if k, err := r.Recall("aaaaaa", "third", refs); !errs.Is(err, errs.NotFound) || len(k.All) != 2 {
		t.Errorf("unknown build: %v, %v", k, err)
	}
	if k, err := resolver("another").Recall("aaaaaa", "second", refs); !errs.Is(err, errs.NotFound) || len(k.All) != 0 {
		t.Errorf("with another cluster secret: %v, %v", k, err)
	}
	for n := range 20 {
		if err := r.Keep("aaaaaa", "same", map[string]string{"DB": strings.Repeat("x", n/2)}); err != nil {
			t.Fatal(err)
		}
	}
	if k, err := r.Recall("aaaaaa", "same", refs); err != nil || k.Values["DB"] != strings.Repeat("x", 9) || len(k.All) > 8 {
		t.Errorf("after many: %v, %v", k, err)
	}
}

func TestSweepRemovesStateOfUnknownInstances(t *testing.T) {
	keep := filepath.Join(t.TempDir(), "secrets")
	r, err := secrets.New(secrets.Config{Secret: clusterSecret, StateDir: keep, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	nobody := func(fleet.InstanceID) bool { return false }
	if err := r.Sweep(nobody); err != nil {
		t.Errorf("before anything was stored: %v", err)
	}
	for _, id := range []fleet.InstanceID{"known1", "forgot", "begins"} {
		if err := r.Keep(id, "first", map[string]string{"DB": "one"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"known1.json.tmp", "gone12.json.tmp", "notes.json", "README", "forgot.txt"} {
		if err := os.WriteFile(filepath.Join(keep, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(keep, "folder.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	err = r.Sweep(func(id fleet.InstanceID) bool {
		if id == "begins" { // a new instance with the same ID
			if err := r.Keep(id, "second", map[string]string{"DB": "two"}); err != nil {
				t.Error(err)
			}
		}
		return id == "known1"
	})
	if err != nil {
		t.Error(err)
	}
	var left []string
	entries, err := os.ReadDir(keep)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if diff := cmp.Diff([]string{"README", "begins.json", "folder.json", "forgot.txt", "known1.json", "notes.json"}, left); diff != "" {
		t.Error(diff)
	}
}

func TestValuesAreMaskedInAllEncodings(t *testing.T) {
	const value = `p"a's:s=w/ö rd&1`
	m := secrets.NewMask(map[string]string{"A": value, "B": "abc", "C": "-----BEGIN-----\nMIIEvQIBADANBg\n-----END-----\n"})
	for _, spelling := range append(secrets.Spellings(value), "MIIEvQIBADANBg") {
		got := m.Text("x " + spelling + " y")
		if got != "x *** y" {
			t.Errorf("%q became %q", spelling, got)
		}
	}
	for _, c := range []string{"nothing of it", "abc", ""} {
		if got := m.Text(c); got != c {
			t.Errorf("%q became %q", c, got)
		}
	}
	lines := secrets.NewMask(map[string]string{"A": "user\npass123\nabc"})
	for text, want := range map[string]string{"user\r\npass123\r\n": "***\r\n***\r\n", "x user\npass123\nabc y": "x *** y", "abc": "abc"} {
		if got := lines.Text(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
	if got := (secrets.Mask{}).Text("x"); got != "x" {
		t.Errorf("%q", got)
	}
	if len(secrets.Spellings("abc")) != 0 {
		t.Error("a value that is in every text is searched")
	}
}

func TestShortValueIsMaskedOnlyAsAWord(t *testing.T) {
	m := secrets.NewMask(map[string]string{"PIN": "test", "EDGES": "-ab-", "SEVEN": "seven77", "EIGHT": "eight888", "NONE": "the", "URL": "a=b?"})
	for text, want := range map[string]string{
		"test": "***", "x test y": "x *** y", "pw=test;": "pw=***;", "u:test@host": "u:***@host", `"test"`: `"***"`, "test\n": "***\n",
		"latest":                "latest",
		"testing":               "testing",
		"test_server":           "test_server",
		"ätest":                 "ätest",
		"testé":                 "testé",
		"test9":                 "test9",
		"latest test":           "latest ***",
		"the test":              "the ***",
		"x-ab-x":                "x***x",
		"xseven77":              "xseven77",
		"/seven77/":             "/***/",
		"xeight888x":            "x***x",
		"\x1b[1;31mtest\x1b[0m": "\x1b[1;31m***\x1b[0m",
		`"line\ntest"`:          `"line\n***"`,
		`"\u003dtest"`:          `"\u003d***"`,
		"q%3Dtest%26":           "q%3D***%26",
		"q=a%3Db%3F&":           "q=***&",
		"dGVzdA== x":            "*** x",
		"xdGVzdA":               "xdGVzdA",
		"x74657374x":            "x***x",
		"testtest":              "testtest",
		"test test":             "*** ***",
		"tes":                   "tes",
		"":                      "",
	} {
		if got := m.Text(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestOverlappingValuesAreMaskedCompletely(t *testing.T) {
	m := secrets.NewMask(map[string]string{"A": "mysql_s3cret", "B": "cret_more_of_it", "C": "mysql_s3", "D": "abcdabcd"})
	for text, want := range map[string]string{
		"x=mysql_s3cret_more_of_it;": "x=***;", "x=mysql_s3;": "x=***;", "abcdabcdabcd!": "***!", "abcdabcdabcdabcd abcdabcd": "*** ***",
	} {
		if got := m.Text(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestPartMasksValuesCutAtItsEnds(t *testing.T) {
	m := secrets.NewMask(map[string]string{"A": "mysql_s3cret", "B": "cret_more_of_it"})
	const text = "x=mysql_s3cret; y=mysql_s3cret_more_of_it."
	for from := range len(text) {
		for to := from; to <= len(text); to++ {
			want := ""
			for at := from; at < to; { // the definition: *** for each value
				switch {
				case at >= 2 && at < 14:
					want, at = want+"***", 14
				case at >= 18 && at < 41:
					want, at = want+"***", 41
				default:
					want, at = want+text[at:at+1], at+1
				}
			}
			if got := m.Part(text, from, to); got != want {
				t.Fatalf("%q became %q, want %q", text[from:to], got, want)
			}
		}
	}
	if m.ContextBytes() < len("cret_more_of_it") || (secrets.Mask{}).ContextBytes() != 0 {
		t.Errorf("context of %d bytes", m.ContextBytes())
	}
}

func FuzzMask(f *testing.F) {
	f.Add("mysql_s3cret", "x mysql_s3cret y")
	f.Add("test", "latest test")
	f.Fuzz(func(t *testing.T, value, text string) {
		got := secrets.NewMask(map[string]string{"A": value}).Text(text)
		if len(value) >= 8 && !strings.Contains(value, "*") && strings.Contains(got, value) {
			t.Errorf("%q in %q is %q", value, text, got)
		}
	})
}
