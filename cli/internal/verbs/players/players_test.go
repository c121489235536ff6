package players_test

import (
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/verbs/players"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func TestCommandsPrintWhatTheyDid(t *testing.T) {
	clitest.Golden(t, players.Commands, []clitest.Case{
		{Args: `allocate --group arena --slots 2 --ttl 10m --note hi`},
		{Args: `allocate -l mode=duels --group arena --strategy spread`},
		{Args: `allocate --group arena --dry-run`},
		{Args: `allocate --group arena -o name`},
		{Args: `allocate --group arena -o csv`},
		{Args: `allocate`},
		{Args: `allocate --group arena --slots two`},
		{Args: `renew a1 --ttl 10m`},
		{Args: `renew a1`},
		{Args: `release a1`},
		{Args: `release a1 --dry-run`},
		{Args: `release a1 b2`},
		{Args: `network show main`},
		{Args: `network show main -o json`},
		{Args: `player show Bob`},
		{Args: `player show Alice`},
		{Args: `player transfer Alice --group arena`},
		{Args: `player transfer alice --to arena-1`},
		{Args: `player message Alice hello`},
		{Args: `player message Alice`},
		{Args: `player transfer Bob`},
		{Args: `player transfer Bob --to a --group b`},
	})
}
