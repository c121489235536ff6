package content_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/verbs/content"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func TestOutput(t *testing.T) {
	var cases []clitest.Case
	for _, args := range []string{
		"file ls arena-1",
		"file ls arena-1 -l",
		"file ls arena-1 -o json",
		"file ls arena-1 -o name",
		"file ls arena-2",
		"file cat arena-1 server.properties",
		"file cat arena-3 logs",
		"file cat arena-4 nothing",
		"file edit arena-1 server.properties",
		"file put arena-1 -",
		"file put arena-1 testdata",
		"file rm arena-1",
		"backup list survival-1",
		"backup list survival-1 -o wide",
		"backup list survival-1 -o name",
		"backup list survival-2",
		"backup list survival-3",
		"backup create survival-1 --dry-run",
		"backup create survival-1 --keep 7 --before save-off --before save-all,flush --until Saved --after save-on",
		"backup create survival-1 --wait",
		"backup create survival-1 --wait -o name",
		"backup create survival-1 --wait --dry-run",
		"backup create survival-1 --until Saved",
		"backup create survival-1 --after save-on",
		"backup create survival-2 --wait",
		"backup restore survival-1 20261130-164500-k3fq",
		"backup restore survival-1 20261130-164500-k3fq --dry-run",
		"backup restore survival-1 20261130-164500-k3fq --yes",
		"backup restore survival-1 20261130-164500-none --yes",
		"backup restore survival-2 20261130-164500-k3fq --yes",
		"__complete backup restore survival-1 20261130-16",
		"__complete backup restore survi",
		"backup delete survival-1 20261130-164500-k3fq",
		"backup delete survival-1 20261130-164500-k3fq --dry-run",
		"backup delete survival-1 20261130-164500-k3fq 20261130-164500-none --yes",
		"secret set mail",
		"secret set db --from-file user",
		"secret set db --from-file user=testdata/value.txt",
		"secret set db --from-file user=testdata/value.txt --replace",
		"secret set mail --value-file testdata/value.txt",
		"secret set mail --value-file testdata/value.txt -o yaml",
		"secret set db --groups game=bedwars",
		"secret rm dbx",
		"source sync directory",
		"source sync directory --wait",
		"source sync",
		"source pause plugins",
		"source pause directory",
		"source set-credentials plugins",
		"source set-credentials plugins --token-file testdata/value.txt",
		"source set-credentials plugins --token-file testdata/value.txt --replace",
		"source webhook plugins",
		"source webhook directory",
		"catalog list",
		"catalog list -o csv",
		"catalog add paper 1.21.4 --url example.org/paper.jar",
		"catalog add paper 1.21.4",
		"catalog recommend paper 1.21.4",
		"catalog recommend PAPER 1.21.5",
		"catalog set paper 1.21.4 --url example.org/new.jar --rename 1.21.4-2",
		"catalog set paper 1.21.4 --url example.org/new.jar -o name",
		"catalog set paper 1.21.4",
		"catalog set PAPER 1.21.5 --category PROXY",
		"catalog rm paper 1.21.4",
		"catalog rm PAPER 1.21.5",
		"cache list node-1",
		"cache list node-1 -o json",
		"cache list node-2",
		"cache refresh node-1",
		"cache warm node-1",
	} {
		cases = append(cases, clitest.Case{Args: args})
	}
	cases = append(cases, clitest.Case{In: "from-a-pipe\n", Args: "secret set mail --value-file -"})
	clitest.Golden(t, content.Commands, cases)
}

func TestGetDoesNotReplaceAFile(t *testing.T) {
	server, local := clitest.NewServer(t), filepath.Join(t.TempDir(), "copy")
	get := func(flags ...string) clitest.Result {
		return clitest.Run(t, content.Commands, server.URL, "", append([]string{"file", "get", "arena-1", "server.properties", local}, flags...)...)
	}
	if got := get(); got.Code != exit.OK {
		t.Fatalf("got %s", got)
	}
	if err := os.WriteFile(local, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := get(); got.Code != exit.Conflict || !strings.Contains(got.Err, "--force") {
		t.Errorf("got %s", got)
	}
	if kept, err := os.ReadFile(local); err != nil || string(kept) != "mine" {
		t.Errorf("the file has %q, %v", kept, err)
	}
	if got := get("--force"); got.Code != exit.OK {
		t.Errorf("got %s", got)
	}
	if text, err := os.ReadFile(local); err != nil || !strings.Contains(string(text), "server-port") {
		t.Errorf("the file has %q, %v", text, err)
	}
}
