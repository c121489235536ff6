package directory

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// asked counts the requests to a medium. If away, the medium answers none.
type asked struct {
	blob.Medium
	n    int
	away bool
}

func (a *asked) Has(ctx context.Context, f blob.File) (bool, error) {
	if a.n++; a.away {
		return false, errs.New(errs.Unavailable, "away")
	}
	return a.Medium.Has(ctx, f)
}

func TestALookAtWhatIsPublishedAsksTheMediumNothing(t *testing.T) {
	disk, err := blob.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	medium := &asked{Medium: disk.Medium}
	blobs, err := blob.New(t.TempDir(), medium)
	if err != nil {
		t.Fatal(err)
	}
	dir, c := t.TempDir(), storetest.New(t)
	service := versions.New(versions.Config{
		Store: c, Blobs: blobs, Replica: "a", Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Copy: func(context.Context, string) int { return 1 },
	})
	d, err := New(Config{Dir: dir, Service: service, Store: c, Replica: "a", Remote: true, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d.scanner.lease = func(*os.File) (bool, bool) { return true, true }
	head := func() content.TemplateHead {
		h, err := service.Head(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	put(t, filepath.Join(dir, "g", "t", "f"), "one")
	put(t, filepath.Join(dir, "g", "t", "sub", "other"), "other")
	d.all(t.Context())
	before := head()
	medium.n = 0
	d.all(t.Context())
	if medium.n > 0 {
		t.Errorf("it was asked %d times", medium.n)
	}
	// A changed template is looked up in the medium, which does not answer; that does not
	// make it read the files again.
	put(t, filepath.Join(dir, "g", "t", "f"), "another")
	medium.away = true
	d.all(t.Context())
	if now := head(); now.Digest != before.Digest {
		t.Errorf("published %+v", now)
	}
	medium.away, medium.n = false, 0
	d.all(t.Context())
	if now := head(); now.Digest == before.Digest || medium.n == 0 {
		t.Errorf("published %+v, asked %d times", now, medium.n)
	}
}
