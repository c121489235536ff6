package docs

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// programs is a directory with prebuilt programs.
var programs = flag.String("bin", "", "use the programs in this directory instead of building them")

// maxSkipped limits the command blocks that no test runs.
const maxSkipped = 10

// awaitDemo waits until the three demo servers are ready.
const awaitDemo = `[ "$(api "$API/api/v1/services?group=arena&state=RUNNING" | grep -o '"id"' | wc -l)" = 3 ]`

// notGuides are pages of docs that explain how Orrery works. Their commands are for
// contributors.
var notGuides = []string{"failures.md", "performance.md", "reliability.md"}

// address is the API's address in the pages.
const address = "127.0.0.1:8080"

// login logs the command line in, and defines the variables and the function that pages about the HTTP API use.
const login = `export ORRERY_CONFIG=$PWD/orrery.yaml
orrery login -q
API=http://127.0.0.1:8080
TOKEN=$(curl -sS --fail-with-body $API/api/v1/auth/login -d '{"username":"admin","password":"'$(cat data/admin-password)'"}' | sed 's/.*"token":"\([^"]*\)".*/\1/')
api() { curl -sS --fail-with-body -H "Authorization: Bearer $TOKEN" "$@"; }
`

func TestMain(m *testing.M) {
	code := m.Run()
	cluster.Cleanup()
	os.Exit(code)
}

// TestPages runs the commands of every page in order.
func TestPages(t *testing.T) {
	root := cluster.Root(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	skipped := 0
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		if slices.Contains(notGuides, filepath.Base(page)) {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks, n, err := Blocks(string(text))
		if err != nil {
			t.Errorf("%s: %v", page, err)
		}
		skipped += n
		if len(blocks) == 0 {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			if os.Getenv("ORRERY_E2E") != "processes" {
				t.Skip("runs with ORRERY_E2E=processes: make e2e")
			}
			runPage(t, page, blocks)
		})
	}
	if skipped > maxSkipped {
		t.Errorf("%d blocks are not run, want at most %d", skipped, maxSkipped)
	}
}

// runPage runs blocks in one bash. Its directory looks like a clone of the repository after
// `make build`, in which standalone -demo runs.
func runPage(t *testing.T, page string, blocks []Block) {
	dir := clone(t)
	api := startStandalone(t, dir)
	b := startBash(t, dir)
	b.must(t, strings.ReplaceAll(login, address, api))
	await.That(t, "the demo servers", func() string {
		output, code := b.try(t, awaitDemo)
		return verdict(Block{}, output, code)
	})
	for _, block := range blocks {
		text := strings.ReplaceAll(block.Text, address, api)
		at := fmt.Sprintf("%s:%d", page, block.Line)
		if block.Retry {
			await.That(t, at, func() string {
				output, code := b.try(t, text)
				return verdict(block, output, code)
			})
			continue
		}
		output, code := b.run(t, text)
		if v := verdict(block, output, code); v != "" {
			t.Fatalf("%s: %s", at, v)
		}
	}
}

func verdict(block Block, output string, code int) string {
	if code != 0 {
		return fmt.Sprintf("exit code %d:\n%s", code, output)
	}
	if line := Missing(output, block.Output); line != "" {
		return fmt.Sprintf("the output does not contain %q:\n%s", line, output)
	}
	return ""
}

// clone creates a directory with the repository's files that a page may use.
func clone(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	bin := *programs
	if bin == "" {
		for _, p := range []string{"./standalone", "./cli/cmd/orrery", "./nodeagent/cmd/nodeagent", "./examples/arena/cmd/arena"} {
			bin = filepath.Dir(cluster.Program(t, p))
		}
	}
	for name, target := range map[string]string{
		"bin": bin, "examples": filepath.Join(cluster.Root(t), "examples"), "deployments": filepath.Join(cluster.Root(t), "deployments"),
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// startStandalone runs standalone with its data in dir until the test ends, and
// returns the address of its API.
func startStandalone(t *testing.T, dir string) string {
	t.Helper()
	var output await.Text
	cmd := exec.Command("bin/standalone", "-demo", "-listen", "127.0.0.1:0")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &output, &output
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "ORRERY_SECRET_EXAMPLE=from the environment")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(await.Patience):
			_ = cmd.Process.Kill()
			t.Error("standalone did not end after SIGTERM")
		}
		if t.Failed() {
			t.Logf("standalone printed:\n%s", &output)
		}
	})
	var ready struct{ API string }
	await.That(t, "ready.json of standalone", func() string {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("standalone ended: %v\n%s", err, &output)
		default:
		}
		b, err := os.ReadFile(filepath.Join(dir, "data", "ready.json"))
		if err != nil {
			return err.Error()
		}
		if err := json.Unmarshal(b, &ready); err != nil {
			return err.Error()
		}
		return ""
	})
	u, err := url.Parse(ready.API)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// bash is one shell that keeps its variables and functions between blocks.
type bash struct {
	stdin  io.Writer
	output *bufio.Reader
}

func startBash(t *testing.T, dir string) *bash {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*await.Patience)
	cmd := exec.CommandContext(ctx, "bash", "--noprofile", "--norc", "-s")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(cmd.Wait())
	}()
	t.Cleanup(func() {
		cancel()
		out.Close()
		<-done
	})
	return &bash{stdin: stdin, output: bufio.NewReader(out)}
}

// endMark is the line that bash prints after the output of a block.
const endMark = "@@block ended@@"

// run runs a block as a script under set -e. A failure ends bash.
func (b *bash) run(t *testing.T, text string) (output string, code int) {
	t.Helper()
	return b.send(t, "set -e\n{\n"+text+"\n} </dev/null\nset +e\necho; echo '"+endMark+"' 0\n")
}

// try runs a block in a subshell: a failure does not end bash, and variables are lost.
func (b *bash) try(t *testing.T, text string) (output string, code int) {
	t.Helper()
	return b.send(t, "(\nset -e\n"+text+"\n) </dev/null\ncode=$?\necho; echo '"+endMark+"' $code\n")
}

func (b *bash) send(t *testing.T, script string) (output string, code int) {
	t.Helper()
	if _, err := io.WriteString(b.stdin, script); err != nil {
		t.Fatalf("writing to bash: %v", err)
	}
	var all strings.Builder
	for {
		line, err := b.output.ReadString('\n')
		if rest, ok := strings.CutPrefix(line, endMark); ok {
			_, err := fmt.Sscan(rest, &code)
			if err != nil {
				t.Fatal(err)
			}
			return all.String(), code
		}
		all.WriteString(line)
		if err != nil {
			return all.String() + "\nbash ended: " + err.Error(), 1
		}
	}
}

func (b *bash) must(t *testing.T, text string) {
	t.Helper()
	if output, code := b.run(t, text); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, output)
	}
}
