package diskusage

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/libs/pause"
)

// Survey measures directories and stores their sizes. Create it with NewSurvey and call Run.
type Survey struct {
	meter *Meter
	// root contains the directories at two levels: ROOT/GROUP/NAME.
	root string
	most int
	// sizes is replaced, never changed.
	sizes atomic.Pointer[map[string]int64]
}

// NewSurvey returns a survey of the directories ROOT/GROUP/NAME. It stores the sizes of the
// largest ones, at most as many as most.
func NewSurvey(m *Meter, root string, most int) *Survey {
	return &Survey{meter: m, root: root, most: most}
}

// Sizes returns the last sizes in bytes by GROUP/NAME. It is nil before the first survey. The
// caller must not modify it.
func (s *Survey) Sizes() map[string]int64 {
	if sizes := s.sizes.Load(); sizes != nil {
		return *sizes
	}
	return nil
}

// Run measures the directories repeatedly until ctx ends, with the pauses of Watch.
func (s *Survey) Run(ctx context.Context) {
	for {
		sizes, took := s.measure(ctx)
		if ctx.Err() != nil {
			return
		}
		s.sizes.Store(&sizes)
		if !pause.For(ctx, min(max((pauseFactor-sharedPauseFactor)*took, minPause), maxPause)) {
			return
		}
	}
}

func (s *Survey) measure(ctx context.Context) (sizes map[string]int64, took time.Duration) {
	sizes = map[string]int64{}
	dirs, _ := filepath.Glob(filepath.Join(s.root, "*", "*")) // the pattern is well formed
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if strings.HasPrefix(name, ".") { // it is being built
			continue
		}
		bytes, alone, err := s.meter.measureAlone(ctx, []string{dir})
		if err != nil {
			return sizes, took
		}
		took += alone
		sizes[filepath.Base(filepath.Dir(dir))+"/"+name] = bytes
	}
	bySize := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b))
	})
	for _, name := range bySize[min(len(bySize), s.most):] {
		delete(sizes, name)
	}
	return sizes, took
}
