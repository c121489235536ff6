package blobcache_test

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestWarmUpCountsOnlyFetchedBytes(t *testing.T) {
	s := newTally()
	c := open(t, t.TempDir(), s)
	old, fresh := random(1, 20, 10_000), random(2, 2, 7_000)
	warm := func(want int64, pieces ...[]byte) {
		t.Helper()
		m := content.Manifest{Entries: []content.ManifestEntry{s.large("world", pieces...)}}
		got := c.WarmUp(t.Context(), []string{s.manifest(t, m)})
		if got[0].Err != nil || got[0].Bytes != want {
			t.Errorf("%d bytes came, want %d: %v", got[0].Bytes, want, got[0].Err)
		}
	}
	warm(200_000, old...)
	warm(0, old...)
	warm(14_000, slices.Concat(old[:5], fresh, old[6:])...)
	s.send = func(_ string, nth int) (io.Reader, error) {
		if nth == 1 {
			return io.MultiReader(strings.NewReader("some"), failing{}), nil
		}
		return nil, nil
	}
	warm(4+9_000, slices.Concat(old[:7], random(3, 1, 9_000), old[9:])...)
}
