package program_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/dropin"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
	"github.com/orreryhq/orrery/templatesvc/internal/sources/program"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fetch runs a script as a source and returns "<template>/<path> <content>" for each file
// in its output.
func fetch(t *testing.T, script string, s content.TemplateSource, c content.SourceCredentials, seen string) (told []string, revision string, err error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "bring")
	if err := errors.Join(os.WriteFile(file, []byte("#!/bin/sh\nset -e\n"+script+"\n"), 0o600), os.Chmod(file, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	s.Name, s.Kind = "mine", content.SourceProgram
	if s.Program == "" {
		s.Program = "bring"
	}
	r := sources.Request{Source: s, Credentials: c, Seen: seen, Spool: t.TempDir()}
	h, err := program.From(dropin.Dir(dir))(t.Context(), r)
	if h != nil {
		printed, _ := filepath.Glob(filepath.Join(r.Spool, "*", "printed"))
		if len(printed) > 0 {
			t.Errorf("the archive is kept to be read again: %v", printed)
		}
		revision = h.Revision
		for _, one := range h.Templates {
			var m content.Manifest
			if m, err = one.Manifest(t.Context(), func(r io.Reader, _ int64) (content.Content, error) {
				b, err := io.ReadAll(r)
				return content.Content{Size: int64(len(b)), SHA256: string(b)}, err
			}); err != nil {
				break
			}
			for _, e := range m.Entries {
				told = append(told, fmt.Sprintf("%s/%s %s%s", one.Ref, e.Path, e.SHA256, e.Target))
			}
		}
		h.Close()
	}
	if left, _ := os.ReadDir(r.Spool); len(left) > 0 {
		t.Errorf("left on disk: %v", left)
	}
	slices.Sort(told)
	return told, revision, err
}

const two = `mkdir -p g/a/sub g/b; printf one > g/a/sub/f; ln g/a/sub/f g/a/same; ln -s sub/f g/a/link; printf "$ORRERY_TOKEN" > g/b/f
tar --sort=name --mtime=@0 -cf - g`

func TestWhatAProgramPrintsBecomesTemplates(t *testing.T) {
	c := content.SourceCredentials{Token: "s3cret"}
	got, revision, err := fetch(t, two, content.TemplateSource{}, c, "")
	want := "[g/a/link sub/f g/a/same one g/a/sub/f one g/b/f s3cret]"
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
	if got, now, err := fetch(t, two, content.TemplateSource{}, c, revision); got != nil || now != "" || err != nil {
		t.Errorf("what was brought is brought again: %v %s %v", got, now, err)
	}
	got, _, err = fetch(t, two+" > all.tar; ln g/a/sub/f g/b/same; rm all.tar; tar --sort=name -cf - g", content.TemplateSource{}, c, "")
	if err != nil || !strings.Contains(fmt.Sprint(got), "g/b/same one") {
		t.Errorf("a hard link to another template's file: %v, %v", got, err)
	}
	one := content.TemplateRef{Group: "x", Name: "y"}
	got, _, err = fetch(t, two+" | gzip", content.TemplateSource{Template: one}, c, "")
	if err != nil || !strings.Contains(fmt.Sprint(got), "x/y/g/a/sub/f one") {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAProgramThatFailsOrPrintsWhatIsHostileBringsNothing(t *testing.T) {
	c := content.SourceCredentials{Token: "s3cret"}
	for name, c2 := range map[string]struct {
		script, program string
		kind            errs.Kind
		want            string
	}{
		"it fails after it printed":  {two + "; echo no token $ORRERY_TOKEN >&2; exit 3", "", errs.Unavailable, "ended with exit status 3: no token ***"},
		"it prints nothing":          {"exit 0", "", errs.Malformed, "0 bytes"},
		"it prints a page":           {"echo '<html>'", "", errs.Malformed, "no archive"},
		"it prints half":             {"mkdir -p g/a; head -c 100000 /dev/zero > g/a/f; tar cf - g | head -c 20000", "", errs.Malformed, "breaks off"},
		"it prints what leads out":   {"mkdir -p g/a; printf x > g/a/f; tar --transform s,g/a,../../etc, -Pcf - g/a/f", "", errs.Malformed, "etc/f"},
		"it is named by a path":      {"exit 0", "../bring", errs.Invalid, "is not a program name"},
		"there is none of that name": {"exit 0", "other", errs.NotFound, "available: bring"},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := fetch(t, c2.script, content.TemplateSource{Program: c2.program}, c, "")
			if got != nil || !errs.Is(err, c2.kind) || !strings.Contains(errs.MessageOf(err), c2.want) || strings.Contains(errs.MessageOf(err), "s3cret") {
				t.Errorf("%v, %v (%s)", got, err, errs.KindOf(err))
			}
		})
	}
}
