package templatesvc_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

// clashes are pairs of names that are the same on some file systems, and the expected
// messages.
var clashes = map[string]struct{ one, other, told string }{
	"letters": {"caf\u00e9", "cafe\u0301", `"cafe\u0301" and "caf\u00e9" differ only in how their letters are put together`},
	"case":    {"README", "ReadMe", `"README" and "ReadMe" differ only in case`},
}

func TestADirectoryWithTwoNamesThatAreOneElsewhereIsRefusedWithBoth(t *testing.T) {
	t.Parallel()
	for name, c := range clashes {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.write(c.one, "one", 0o644)
			w.write("f", "one", 0o644)
			w.start("a")
			before, _ := w.head()
			w.write("f", "two", 0o644)
			w.write(c.other, "two", 0o644)
			st := w.directory("a", content.SourceFailed, "g/t is not published as it is: ")
			if !strings.Contains(st.Message, c.told) {
				t.Errorf("%s", st.Message)
			}
			if now, _ := w.head(); now.Digest != before.Digest {
				t.Error("some of it was published")
			}
			if err := os.Remove(filepath.Join(w.dir, ref.Group, ref.Name, c.one)); err != nil {
				t.Fatal(err)
			}
			w.await("published without one of them", func(h content.TemplateHead, _ bool) bool { return h.Digest != before.Digest })
			w.directory("a", content.SourceInSync, "")
		})
	}
}

func TestARepositoryWithTwoNamesThatAreOneElsewhereIsRefusedWithBoth(t *testing.T) {
	t.Parallel()
	for name, c := range clashes {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.dir = ""
			var source content.TemplateSource
			dir, ask := w.follow(&source)
			tree(t, dir, "g/t/f", "g/t/"+c.one)
			ask()
			w.start("a")
			w.status("repo", content.SourceInSync)
			before, _ := w.head()
			tree(t, dir, "g/t/f", "g/t/new", "g/t/"+c.one, "g/t/"+c.other)
			ask()
			st := w.status("repo", content.SourceFailed)
			if !strings.Contains(st.Message, "the first is g/t: ") || !strings.Contains(st.Message, c.told) {
				t.Errorf("%s", st.Message)
			}
			if now, _ := w.head(); now.Digest != before.Digest {
				t.Error("some of it was published")
			}
			tree(t, dir, "g/t/f", "g/t/new", "g/t/"+c.other)
			ask()
			w.status("repo", content.SourceInSync)
		})
	}
}
