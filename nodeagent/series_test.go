package nodeagent_test

import (
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/series"
)

func TestSeriesOfNodeAndInstances(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	w, err := series.ParseWindow("15m", "10")
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the first sample", func() string {
		f, err := s.api().NodeSeries(t.Context(), w)
		if err != nil {
			return err.Error()
		}
		last := f.Series["usedMemoryMb"]
		return await.Unless(f.Since != nil && len(last) == 10 && last[9] != nil && *last[9] > 0, "%+v", f)
	})
	if _, err := s.api().Series(t.Context(), "zzzzzz", w); !errs.Is(err, errs.NotFound) {
		t.Errorf("an instance that is not here: %v", err)
	}
}
