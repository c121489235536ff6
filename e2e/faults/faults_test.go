package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/faults/plan"
)

// budget is the time after which no further seed starts.
const budget = 2 * time.Minute

// selection returns the seeds of a regular test run: as many as the budget allows with the
// runner of separate processes, else only the first.
func selection() []uint64 {
	all := []uint64{1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31}
	if os.Getenv("ORRERY_E2E") != "processes" {
		return all[:1]
	}
	return all
}

func TestWhateverFailsTheLawsHold(t *testing.T) {
	var out bytes.Buffer
	h, err := newHarness(t.Context(), "", false, &out)
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	start := time.Now()
	for _, seed := range selection() {
		if time.Since(start) > budget {
			t.Logf("seeds from %d on are left out for time", seed)
			break
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			out.Reset()
			if !h.seed(t.Context(), seed) {
				t.Error(out.String())
			}
		})
	}
}

func TestAScenarioIsPrintedWithItsFaults(t *testing.T) {
	var out, problems bytes.Buffer
	if code := run([]string{"-plan", "-seed", "7", "-count", "2"}, &out, &problems); code != 0 {
		t.Fatalf("exit code %d: %s", code, problems.String())
	}
	for seed := uint64(7); seed < 9; seed++ {
		for _, f := range plan.Generate(seed, features()).Faults {
			if !strings.Contains(out.String(), f.String()) {
				t.Errorf("%q is missing in:\n%s", f, out.String())
			}
		}
	}
	if code := run([]string{"-nonsense"}, &out, &problems); code != 2 {
		t.Errorf("an unknown flag: exit code %d", code)
	}
}
