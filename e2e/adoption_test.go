package e2e_test

import (
	"testing"

	"github.com/orreryhq/orrery/e2e/adopt"
	"github.com/orreryhq/orrery/e2e/cluster/site"
)

func TestAKilledAgentEndsNothingAndNoConsoleMissesALine(t *testing.T) {
	programs, err := site.Build(t.Context(), t.TempDir(), false, adopt.Packages()...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := adopt.Run(t.Context(), programs, adopt.Options{
		Dir: t.TempDir(), Instances: 10, Rate: 50, Kills: 5, Seed: 7, Log: t.Logf,
	})
	if err != nil || r.Exits > 0 || r.Gaps > 0 || r.Duplicates > 0 || r.Lines == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
