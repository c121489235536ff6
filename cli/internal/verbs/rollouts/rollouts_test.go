package rollouts_test

import (
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/verbs/rollouts"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func TestCommandsPrintWhatTheyDid(t *testing.T) {
	clitest.Golden(t, rollouts.Commands, []clitest.Case{
		{Args: `rollout start arena --dry-run`},
		{Args: `rollout start arena --strategy blue_green --deadline 2m --health-gate=false`},
		{Args: `rollout start arena -o name`},
		{Args: `rollout start arena --strategy fast`},
		{Args: `rollout start arena --deadline 1.5s`},
		{Args: `rollout start nope`},
		{Args: `rollout status arena`},
		{Args: `rollout status arena -o json`},
		{Args: `rollout status broken --watch`},
		{Args: `rollout status slow`},
		{Args: `rollout status nope`},
		{Args: `rollout pause arena`},
		{Args: `rollout pause arena --dry-run`},
		{Args: `rollout resume arena`},
		{Args: `rollout promote arena`},
		{Args: `rollout cancel arena --revision 5`},
		{Args: `rollout undo arena`},
		{Args: `rollout undo arena --dry-run`},
		{Args: `rollout history arena`},
		{Args: `rollout history arena -o name`},
	})
}
