package creating_test

import (
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/verbs/creating"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func TestADryRunCreatesNothing(t *testing.T) {
	clitest.Golden(t, creating.Commands, []clitest.Case{
		{Args: `template lobby --description World --dry-run`},
		{Args: `template lobby --dry-run -o name`},
		{Args: `user alice --role VIEWER --password-file - --dry-run`, In: "secret-of-alice\n"},
		{Args: `service-account ci --dry-run`},
	})
}
