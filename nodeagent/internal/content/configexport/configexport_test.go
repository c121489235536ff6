package configexport_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/configexport"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

// site is an instance's directory and a request to export it.
type site struct {
	t *testing.T
	configexport.Request
}

func newSite(t *testing.T) *site {
	return &site{t: t, Request: configexport.Request{
		Dir:          t.TempDir(),
		Original:     func(context.Context, string) (render.Original, error) { return render.Original{}, nil },
		CheckRunning: func() error { return nil },
	}}
}

func (s *site) write(name, content string) {
	s.t.Helper()
	path := filepath.Join(s.Dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o640)); err != nil {
		s.t.Fatal(err)
	}
}

// read exports the site and returns contents by path, and the skipped files.
func (s *site) read() (files, skipped map[string]string, report client.ExportReport, err error) {
	s.t.Helper()
	var b bytes.Buffer
	if err := configexport.Write(s.t.Context(), &b, s.Request); err != nil {
		return nil, nil, report, err
	}
	files, skipped = map[string]string{}, map[string]string{}
	r, last := tar.NewReader(&b), ""
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			s.t.Fatal(err)
		}
		files[h.Name], last = string(content), h.Name
	}
	if last != client.ExportReportName {
		s.t.Fatalf("the last entry is %s", last)
	}
	if err := json.Unmarshal([]byte(files[last]), &report); err != nil {
		s.t.Fatal(err)
	}
	delete(files, last)
	if report.Files != len(files) {
		s.t.Errorf("%d files, the report says %d", len(files), report.Files)
	}
	for _, f := range report.Skipped {
		skipped[f.Path] = f.Reason
	}
	return files, skipped, report, nil
}

func (s *site) must() (files, skipped map[string]string) {
	s.t.Helper()
	files, skipped, _, err := s.read()
	if err != nil {
		s.t.Fatal(err)
	}
	return files, skipped
}

func TestConfigurationIsExportedAndTheRestReported(t *testing.T) {
	s := newSite(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.write("server.properties", "a=1\n")
	s.write("plugins/x/config.yml", "ünïcode: ☃\n")
	s.write("empty", "")
	s.write("server.jar", "PK\x00\x01")
	s.write("latin", "\xe4")
	s.write("world/level.dat", "x")
	s.write("world/readme.txt", "text in a world")
	s.write("nether/region/r.0.0.mca", "text by chance")
	s.write("huge.txt", strings.Repeat("x", 1<<20+1))
	s.write("largest.txt", strings.Repeat("x", 1<<20))
	s.write(".orrery-lock", "the agent's")
	s.write("back\\slash", "x")
	s.write(strings.Repeat("d/", 25)+"deep", "x")
	err := errors.Join(
		os.Symlink(outside, filepath.Join(s.Dir, "link")), os.Symlink(filepath.Dir(outside), filepath.Join(s.Dir, "linked")),
		unix.Mkfifo(filepath.Join(s.Dir, "pipe"), 0o600), unix.Mknod(filepath.Join(s.Dir, "socket"), unix.S_IFSOCK|0o600, 0),
	)
	if err != nil {
		t.Fatal(err)
	}
	files, skipped := s.must()
	want := map[string]string{
		"server.properties": "a=1\n", "plugins/x/config.yml": "ünïcode: ☃\n", "empty": "", "largest.txt": strings.Repeat("x", 1<<20),
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("exported: %s", diff)
	}
	wantSkipped := map[string]string{
		"server.jar": "not text", "latin": "not text", "world": "a world", "nether": "a world", "huge.txt": "larger than 1 MiB",
		"back\\slash": "its name is not allowed in a template", strings.Repeat("d/", 24) + "d": "more than 24 directories deep",
		"link": "a link", "linked": "a link", "pipe": "not a file", "socket": "not a file",
	}
	if diff := cmp.Diff(wantSkipped, skipped); diff != "" {
		t.Errorf("skipped: %s", diff)
	}
}

func TestPlaceholdersAreRestored(t *testing.T) {
	s := newSite(t)
	template := "# %NAME%\nport=%PORT%\r\nmotd=Hello\nmax=20\nlast=%PORT%"
	made := "# lobby-1\nport=25565\r\nmotd=Hello\nmax=20\nlast=25565"
	s.Original = func(_ context.Context, name string) (render.Original, error) {
		switch name {
		case "server.properties":
			return render.Original{Template: []byte(template), Rendered: []byte(made)}, nil
		case "lines":
			return render.Original{Template: []byte("%TWO%\nx\n"), Rendered: []byte("1\n2\nx\n")}, nil
		case "unknown":
			return render.Original{}, errors.New("no answer")
		}
		return render.Original{}, nil
	}
	// rewritten by the server: another order, a changed value, additional lines
	s.write("server.properties", "#Sat Nov 21\nmax=40\nlast=25565\n# lobby-1\nport=25565\nmotd=Hello\nnew=25565\n")
	s.write("lines", "1\n2\nx\ny\n")
	s.write("unknown", "x\n")
	s.write("other", "port=25565\n")
	files, skipped := s.must()
	want := map[string]string{
		"server.properties": "#Sat Nov 21\nmax=40\nlast=%PORT%\n# %NAME%\nport=%PORT%\nmotd=Hello\nnew=25565\n",
		"lines":             "1\n2\nx\ny\n", "other": "port=25565\n",
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Error(diff)
	}
	if len(skipped) != 1 || skipped["unknown"] == "" {
		t.Errorf("skipped: %v", skipped)
	}
}

func TestNoSecretIsExported(t *testing.T) {
	s := newSite(t)
	s.Secrets = []configexport.Secret{{Value: "token-of-the-instance"}, {Value: "pass word", Placeholder: "%RCON%"}, {Value: "x"}, {Value: ""}, {Value: "in the template"}}
	s.Original = func(_ context.Context, name string) (render.Original, error) {
		if name == "open" {
			return render.Original{Template: []byte("in the template\nx\n"), Rendered: []byte("in the template\nx\n")}, nil
		}
		return render.Original{}, nil
	}
	s.write("env", "TOKEN=token-of-the-instance\n")
	s.write("rcon", "rcon.password=pass word\nxy\n")
	s.write("open", "in the template\n")
	files, skipped := s.must()
	if diff := cmp.Diff(map[string]string{"rcon": "rcon.password=%RCON%\nxy\n", "open": "in the template\n"}, files); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"env": "may contain a secret"}, skipped); diff != "" {
		t.Error(diff)
	}
}

func TestPrefixLimitsTheExport(t *testing.T) {
	s := newSite(t)
	s.write("a/b/c", "1")
	s.write("a/bc", "2")
	for prefix, want := range map[string]map[string]string{
		"a/b": {"a/b/c": "1"}, "a/bc": {"a/bc": "2"}, "a": {"a/b/c": "1", "a/bc": "2"},
	} {
		s.Prefix = prefix
		if files, _ := s.must(); !cmp.Equal(files, want) {
			t.Errorf("%s: %v", prefix, files)
		}
	}
	for prefix, kind := range map[string]errs.Kind{
		"..": errs.Invalid, "/etc": errs.Invalid, "a/../..": errs.Invalid, "a//b": errs.Invalid, "none": errs.NotFound,
	} {
		s.Prefix = prefix
		if _, _, _, err := s.read(); !errs.Is(err, kind) {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

func TestSymlinkInThePrefixIsNotFollowed(t *testing.T) {
	s := newSite(t)
	outside := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(outside, "x"), []byte("secret"), 0o600), os.Symlink(outside, filepath.Join(s.Dir, "out"))); err != nil {
		t.Fatal(err)
	}
	s.Prefix = "out/x"
	if files, _, _, err := s.read(); err == nil {
		t.Errorf("it read %v", files)
	}
}

func TestLimitsAreReported(t *testing.T) {
	s := newSite(t)
	s.write("d/first", "x")
	for i := range 5000 { // hard links, which are created quickly
		if err := os.Link(filepath.Join(s.Dir, "d/first"), filepath.Join(s.Dir, "d", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	files, _, report, err := s.read()
	if err != nil || report.Truncated == "" || len(files) >= 5000 || len(files) < 4000 {
		t.Errorf("%d files, %q, %v", len(files), report.Truncated, err)
	}
	s = newSite(t)
	for i := range 700 {
		s.write(fmt.Sprint(i), "\x00")
	}
	if _, skipped, report, err := s.read(); err != nil || len(skipped) != 500 || report.MoreSkipped != 200 {
		t.Errorf("%d and %d more, %v", len(skipped), report.MoreSkipped, err)
	}
}

func TestEndedInstanceGivesNoReport(t *testing.T) {
	s := newSite(t)
	s.write("a", "1")
	s.CheckRunning = func() error { return errs.New(errs.Conflict, "the instance ended") }
	if _, _, _, err := s.read(); !errs.Is(err, errs.Conflict) {
		t.Error(err)
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := s.read(); !errs.Is(err, errs.NotFound) {
		t.Error(err)
	}
}

func TestSecretsAreFoundInAnyEncoding(t *testing.T) {
	long := `p"a\s's& wörd=1`
	cases := []struct {
		secret, file, content string
		kept                  bool
	}{
		{long, "a.txt", "x " + long, false},
		{long, "a.json", `{"x": "p\"a\\s's& w\u00f6rd=1"}`, false},
		{long, "a.json", `{"x": "p\u0022a\u005cs's\u0026 w\u00F6rd=1"}`, false},
		{long, "a.yml", `x: "p\"a\\s's& w\xf6rd=1"` + "\n", false},
		{long, "a.yml", `x: 'p"a\s''s& wörd=1'` + "\n", false},
		{long, "a.yml", "x: |-\n  p\"a\\s's& wörd=1\n", false},
		{long, "a.yml", `x: "p\"a\\s's&` + "\n  wörd=1\"\n", false},
		{long, "a.toml", `x = "p\"a\\s's& w\u00F6rd=1"` + "\n", false},
		{long, "a.properties", `x=p"a\\s's& w\u00f6rd\=1` + "\n", false},
		{long, "a.properties", `x=p"a\\s's& \` + "\n   w\\u00f6rd=1\n", false},
		{long, "a.conf", `x=p"a\\s's& \` + "\n   wörd=1\n", false},
		{long, "a.url", `mysql://u:p%22a%5Cs%27s%26%20w%C3%B6rd%3D1@h`, false},
		{long, "a.xml", `<x>p&quot;a\s&#39;s&amp; wörd=1</x>`, false},
		{long, "a.yml", "x: other\n", true},
		{"-----BEGIN-----\nabcdefghij\n-----END-----", "a.yml", "key: |\n  -----BEGIN-----\n  abcdefghij\n", false},

		{"user:pass", "a.yml", "auth: dXNlcjpwYXNz\n", false},
		{"user:pas", "a.yml", "auth: dXNlcjpwYXM\n", false},
		{"user:pass", "a.yml", "auth: 757365723A70617373\n", false},

		{"1e5", "a.yml", "x: 1e5\n", false},
		{"1e5", "a.yml", "x: 100000.0\n", false},
		{"1e5", "a.json", `{"x":1.0E5}`, false},
		{"1e5", "a.conf", "x=100000;", false},
		{"1e5", "a.conf", "x=21e55", true},
		{"007", "a.yml", "x: 007\n", false},
		{"007", "a.toml", "x = 7\n", false},
		{"007", "a.conf", "x 7", false},
		{"007", "a.conf", "x 70.07 a7", true},
		{"0x1F4", "a.json", `{"x":500}`, false},
		{"0755", "a.yml", "x: 493\n", false},
		{"1_000_000", "a.json", `{"x":1000000}`, false},
		{"12345678901234567890123", "a.json", `{"x":1.2345678901234568e22}`, false},
		{"abc", "a.conf", "x-abc.y", false},
		{"abc", "a.conf", "xabc", true},
		{"abc", "dir/abc.conf", "y", false},
	}
	for _, c := range cases {
		s := newSite(t)
		s.Secrets = []configexport.Secret{{Value: c.secret}}
		s.write(c.file, c.content)
		files, skipped := s.must()
		if kept := len(files) == 1; kept != c.kept || len(skipped) == 1 == c.kept {
			t.Errorf("%q in %s of %q: kept %v, left out %v", c.secret, c.file, c.content, kept, skipped)
		}
		for name := range skipped {
			if strings.Contains(name, c.secret) {
				t.Errorf("the report names %s", name)
			}
		}
	}
}

func TestWithheldValueStaysInNamesAndKnownLines(t *testing.T) {
	s := newSite(t)
	s.Secrets = []configexport.Secret{
		{Value: "survival", Placeholder: "%MODE%", Withheld: true},
		{Value: "https://hooks.example/abc", Placeholder: "%HOOK%", Withheld: true},
		{Value: "localhost", Placeholder: "%DB_HOST%", Withheld: true},
		{Value: "localhost:s3cret", Placeholder: "%DB%"},
	}
	s.Original = func(_ context.Context, name string) (render.Original, error) {
		if name == "known.yml" {
			text := []byte("world: survival\nhost: localhost:s3cret\n")
			return render.Original{Template: text, Rendered: text}, nil
		}
		return render.Original{}, nil
	}
	s.write("plugins/survival/config.yml", "world: survival_nether\nsurvivalists: 3\nmode: survival\n")
	s.write("known.yml", "world: survival\nhost: localhost:s3cret\nmode: survival\ndb: localhost:s3cret\n")
	s.write("hook", "hook=https://hooks.example/abc;xhttps://hooks.example/abc/d\n")
	s.write("hook.properties", "hook=https\\://hooks.example/abc\n") // escaped as Java does
	s.write("survival.txt", "localhostess\nlocalhost:s3cret\n")
	s.write("both", "x=localhost\ny=localhost:s3cret\nz=alocalhost:s3cret\n")
	files, skipped := s.must()
	want := map[string]string{
		"plugins/survival/config.yml": "world: survival_nether\nsurvivalists: 3\nmode: %MODE%\n",
		"known.yml":                   "world: survival\nhost: %DB%\nmode: %MODE%\ndb: %DB%\n",
		"hook":                        "hook=%HOOK%;xhttps://hooks.example/abc/d\n",
		"survival.txt":                "localhostess\n%DB%\n",
		"both":                        "x=%DB_HOST%\ny=%DB%\nz=a%DB%\n",
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"hook.properties": "may contain a secret"}, skipped); diff != "" {
		t.Errorf("skipped: %s", diff)
	}
}

func TestFileIsSkippedUnlessSecretsCanBeReplaced(t *testing.T) {
	s := newSite(t)
	s.Secrets = []configexport.Secret{{Value: `pa"ss`, Placeholder: "%DB%"}, {Value: "007", Placeholder: "%PIN%"}}
	s.Values = map[string]string{"DB": `pa"ss`, "PIN": "007"}
	s.Original = func(_ context.Context, name string) (render.Original, error) {
		if name == "known.yml" {
			return render.Original{Template: []byte("db: '%DB%'\npin: %PIN%\nx: 1\n"), Rendered: []byte("db: 'pa\"ss'\npin: 007\nx: 1\n")}, nil
		}
		return render.Original{}, nil
	}
	s.write("plain", "x=pa\"ss\n")
	s.write("escaped.json", `{"x":"pa\"ss"}`)
	s.write("both.json", `{"x":"pa\"ss","y":"%","z":'pa"ss'}`)
	s.write("pin", "pin=7\n")
	s.write("known.yml", "x: 2\npin: 7\ndb: \"pa\\\"ss\"\n")
	files, skipped := s.must()
	if diff := cmp.Diff(map[string]string{"plain": "x=%DB%\n", "known.yml": "x: 2\npin: %PIN%\ndb: '%DB%'\n"}, files); diff != "" {
		t.Error(diff)
	}
	if len(skipped) != 3 || skipped["escaped.json"] == "" || skipped["both.json"] == "" || skipped["pin"] == "" {
		t.Errorf("skipped: %v", skipped)
	}
}

func TestNestedSecretsAreReplacedCompletely(t *testing.T) {
	s := newSite(t)
	s.Secrets = []configexport.Secret{
		{Value: "mysql", Placeholder: "%A_USER%"},
		{Value: "mysql_s3cret", Placeholder: "%Z_PASS%"},
		{Value: "cret_more", Placeholder: "%NEXT%"},
		{Value: "abab", Placeholder: "%ABAB%"},
		{Value: "mysql", Placeholder: "%BEFORE%"},
		{Value: "Z_PASS", Placeholder: "%NAME%"},
		{Value: "my_mysql_s3cret", Placeholder: "%Z_PASS%"},
	}
	s.write("both", "x: mysql_s3cret\ny: mysql\n")
	s.write("longer", "x=mysql_s3cret;mysql_s3cret\n")
	s.write("before", "x=my_mysql_s3cret\n")
	s.write("overlap", "x=mysql_s3cret_more\n")
	s.write("itself", "x=ababab\n")
	s.write("twice", "x=abababab\n")
	s.write("name", "x=Z_PASS mysql_s3cret\n")
	files, skipped := s.must()
	if diff := cmp.Diff(map[string]string{"both": "x: %Z_PASS%\ny: %A_USER%\n", "longer": "x=%Z_PASS%;%Z_PASS%\n", "before": "x=%Z_PASS%\n"}, files); diff != "" {
		t.Error(diff)
	}
	if len(skipped) != 4 {
		t.Errorf("skipped: %v", skipped)
	}
}

func TestUnchangedFilesAreNotExported(t *testing.T) {
	s := newSite(t)
	s.Values = map[string]string{"PORT": "25565"}
	s.Original = func(_ context.Context, name string) (render.Original, error) {
		switch name {
		case "copied", "changed":
			sum := sha256.Sum256([]byte("copied"))
			return render.Original{SHA256: hex.EncodeToString(sum[:])}, nil
		case "made", "put-back.properties":
			return render.Original{Template: []byte("port=%PORT%\n"), Rendered: []byte("port=25565\nmotd=hi\n")}, nil
		case "patched.yml":
			return render.Original{Rendered: []byte("a: 1\n")}, nil
		}
		return render.Original{}, nil
	}
	s.write("copied", "copied")
	s.write("changed", "copied!")
	s.write("made", "port=25565\nmotd=hi\n")
	s.write("put-back.properties", "motd=hi\nport=25565\n")
	s.write("patched.yml", "a: 1\n")
	s.write("own", "copied")
	files, skipped, report, err := s.read()
	if err != nil || report.Unchanged != 4 || len(skipped) != 0 {
		t.Errorf("%+v, %v, %v", report, skipped, err)
	}
	if diff := cmp.Diff(map[string]string{"changed": "copied!", "own": "copied"}, files); diff != "" {
		t.Error(diff)
	}
}
