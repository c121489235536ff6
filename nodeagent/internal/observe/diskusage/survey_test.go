package diskusage_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orreryhq/orrery/nodeagent/internal/observe/diskusage"
)

func TestSurveyKeepsLargestExistingDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		write(t, 3*mib, root, "survival", "survival-1", "world")
		write(t, mib, root, "survival", "survival-2", "world")
		write(t, 2*mib, root, "creative", "creative-1", "world")
		write(t, 9*mib, root, "creative", ".new-creative-2-n1", "world")
		ctx, cancel := context.WithCancel(t.Context())
		s := diskusage.NewSurvey(diskusage.NewMeter(), root, 2)
		if s.Sizes() != nil {
			t.Errorf("before the first survey: %v", s.Sizes())
		}
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		found := func(want map[string]int64) {
			<-time.After(maxPause)
			synctest.Wait()
			got := map[string]int64{}
			for name, bytes := range s.Sizes() {
				got[name] = bytes / mib
			}
			if !maps.Equal(got, want) {
				t.Errorf("found %v, want %v", got, want)
			}
		}
		found(map[string]int64{"survival/survival-1": 3, "creative/creative-1": 2})
		if err := os.RemoveAll(filepath.Join(root, "survival", "survival-1")); err != nil {
			t.Fatal(err)
		}
		found(map[string]int64{"survival/survival-2": 1, "creative/creative-1": 2})
		cancel()
		<-done
	})
}

// maxPause is longer than the pause between two surveys.
const maxPause = 6 * time.Minute
