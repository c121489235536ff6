package diagnosis_test

import (
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/verbs/diagnosis"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func TestCommandsPrintWhatTheyDid(t *testing.T) {
	clitest.Golden(t, diagnosis.Commands, []clitest.Case{
		{Args: `problems`},
		{Args: `problems group`},
		{Args: `problems nodes`},
		{Args: `problems lobby`},
		{Args: `problems arena`},
		{Args: `problems aren`},
		{Args: `problems -o json`},
		{Args: `problems -o csv`},
		{Args: `explain arena-1`},
		{Args: `explain instance arena-1 -o name`},
		{Args: `explain arena-9`},
		{Args: `explain arena`},
		{Args: `explain group arena`},
		{Args: `explain group arena -o json`},
		{Args: `explain group held`},
		{Args: `explain node node-1`},
		{Args: `explain user alice`},
		{Args: `simulate drain node-1`},
		{Args: `simulate drain node-1 -o jsonpath={.pending}`},
		{Args: `simulate lose node-1`},
		{Args: `simulate move arena-1 --to node-2`},
		{Args: `simulate place aren`},
		{Args: `history group arena`},
		{Args: `history group arena -n 1`},
		{Args: `history group arena -o csv`},
		{Args: `history group arena -n 0`},
		{Args: `history player x`},
		{Args: `history group arena --at tomorrow`},
		{Args: `audit`},
		{Args: `audit -n 2 -o name`},
		{Args: `audit --since yesterday`},
		{Args: `share console arena-1 --lines 200 --expires 1h`},
		{Args: `share console arena-1 -o name`},
		{Args: `share console arena-0`},
		{Args: `share system --level WARN --once=false --private`},
		{Args: `share node`},
		{Args: `share revoke 7k2m9xq4`},
	})
}
