package groups_test

import (
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/verbs/groups"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func TestCommandsPrintWhatTheyDid(t *testing.T) {
	clitest.Golden(t, groups.Commands, []clitest.Case{
		{Args: `scale arena --to 3 --dry-run`},
		{Args: `scale arena --to 5`},
		{Args: `scale arena --to 5 --wait`},
		{Args: `scale group arena --to 5 -o json`},
		{Args: `scale group/arena --to 5 -o yaml`},
		{Args: `scale arena --to 5 -o name`},
		{Args: `scale arena --to 5 -o csv`},
		{Args: `scale arena --to 5 -o jsonpath={.revision}`},
		{Args: `scale aren --to 5`},
		{Args: `scale arena`},
		{Args: `scale arena --to -1`},
		{Args: `scale --to 1`},
		{Args: `scale`},
		{Args: `scale arena b --to 1`},
		{Args: `maintenance on --message soon --dry-run`},
		{Args: `maintenance on --message soon --bypass Al`},
		{Args: `maintenance on group arena`},
		{Args: `maintenance on group arena --dry-run`},
		{Args: `maintenance on arena`},
		{Args: `maintenance status`},
		{Args: `maintenance status -o json`},
		{Args: `schedule run nightly`},
		{Args: `schedule run nightly --dry-run`},
		{Args: `schedule run hourly --dry-run`},
		{Args: `schedule run nightly --wait`},
		{Args: `schedule run nightly --wait -o jsonpath={.result}`},
		{Args: `schedule run nightly --wait --dry-run`},
		{Args: `schedule run weekly --wait`},
		{Args: `schedule run hourly --wait`},
		{Args: `schedule run nightl`},
		{Args: `schedule history nightly`},
		{Args: `schedule history nightly -o name`},
		{Args: `schedule disable nightly`},
		{Args: `schedule disable nightly --dry-run`},
		{Args: `notice disable hook`},
		{Args: `notice test hook`},
		{Args: `notice test hook --dry-run`},
		{Args: `crash show qi7e72-1-1`},
		{Args: `crash show qi7e72-1-1 -o jsonpath={.logTail[0]}`},
		{Args: `crash show x`},
		{Args: `crash trends`},
		{Args: `crash trends -o csv`},
		{Args: `crash reset arena`},
		{Args: `scaling replay arena`},
		{Args: `scaling replay arena -f -`, In: "scaleUpThreshold: 0.5\n"},
		{Args: `scaling replay group arena -f -`, In: "scaleUpTreshold: 0.5\n"},
		{Args: `scaling replay arena -f missing.yaml`},
	})
}
