package templates_test

import (
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/verbs/templates"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func TestOutput(t *testing.T) {
	var cases []clitest.Case
	for _, args := range []string{
		"template versions lobby",
		"template versions lobby -o wide",
		"template versions lobby -o json",
		"template versions lobby -o yaml",
		"template versions lobby -o csv",
		"template versions lobby -o name",
		"template versions lobby -o jsonpath={.items[*].message}",
		"template versions loby",
		"template files lobby",
		"template files lobby -o name",
		"template variables list lobby",
		"template variables scan lobby",
		"template variables set lobby slots=30",
		"template variables set lobby slots --min 1 --max 100",
		"template variables set lobby slots=300 --dry-run",
		"template variables set lobby map=hub --scope INSTANCE --regex [a-z]+",
		"template variables set lobby map=hub --type ENUM --values hub,desert",
		"template variables rm lobby motd",
		"template variables rm lobby mot",
		"template diff lobby",
		"template diff lobby -o json",
		"template diff lobby --files",
		"template rollback lobby",
		"template rollback lobby --dry-run",
		"template rollback lobby -o json",
		"template rollback lobby -o name",
		"template sync lobby",
		"template sync lobby -o name",
		"template sync",
		"template save lobby-1 lobby",
		"template save lobby-1 lobby -o name",
		"template save lobby-1 lobby --path plugins --dry-run",
		"template save lobby-2 loby",
		"template save loby-1 lobby",
		"template save lobby-1",
		"template draft show lobby",
		"template draft publish lobby",
		"template draft publish lobby --dry-run",
		"template draft publish loby --dry-run",
		"template draft discard lobby",
		"template draft discard lobby --dry-run",
		"template draft show loby",
		"template edit lobby server.properties",
		"template push",
		"template pull lobby --version x --force a b",
		"template push lobby testdata/api/GET_templates.json",
		"template push lobby testdata/none",
		"template push lobby testdata --exclude [",
	} {
		cases = append(cases, clitest.Case{Args: args})
	}
	clitest.Golden(t, templates.Commands, cases)
}
