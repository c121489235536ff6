package templatesvc_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestWhatIsDroppedIntoAnEmptyDirectoryGoesWithItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("a") // while the directory is empty
	w.write("f", "one", 0o644)
	w.await("the template", func(_ content.TemplateHead, exists bool) bool { return exists })
	w.other(t, "stays")
	if err := os.RemoveAll(filepath.Join(w.dir, ref.Group)); err != nil {
		t.Fatal(err)
	}
	w.await("its end", func(_ content.TemplateHead, exists bool) bool { return !exists })
}
