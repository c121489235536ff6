package cluster_test

import (
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/verbs/cluster"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func TestCommandsPrintWhatTheyDid(t *testing.T) {
	clitest.Golden(t, cluster.Commands, []clitest.Case{
		{Args: `config show`},
		{Args: `config show -o jsonpath={.activeVersion}`},
		{Args: `config show -o name`},
		{Args: `config show 1`},
		{Args: `config show 9`},
		{Args: `config show nothing`},
		{Args: `config show -o csv`},
		{Args: `config history`},
		{Args: `config history -o name`},
		{Args: `config set security.lockout.maxFailures=10 security.jwtExpirationMinutes- --reason test`},
		{Args: `config set http.cors.allowedOrigins=https://a.example,https://b.example`},
		{Args: `config set http.cors.allowedOrigins=https://a.example --dry-run`},
		{Args: `config set security.lockout.maxFailures`},
		{Args: `config set a=1 a=2`},
		{Args: `config add http.cors.allowedOrigins https://b.example`},
		{Args: `config add http.cors.allowedOrigins https://panel.example.org`},
		{Args: `config add network.allowedEgress 10.0.0.0/8 -o json`},
		{Args: `config add http.cors.allowedOrigin https://b.example`},
		{Args: `config add security.lockout.maxFailures 3`},
		{Args: `config remove http.cors.allowedOrigins https://panel.example.org`},
		{Args: `config remove http.cors.allowedOrigins https://other.example.org`},
		{Args: `config rollback 1`},
		{Args: `config rollback 0 --dry-run`},
		{Args: `config rollback x`},
	})
}
