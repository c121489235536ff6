package cli_test

import (
	"context"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
)

// endOfChatty2 matches what `orrery logs -f` prints about an instance that ends while its group is followed.
var endOfChatty2 = regexp.MustCompile(`(?m)^chatty-2: ended: .*\n`)

func testPipes(t *testing.T, c cluster.Cluster) {
	u := newUser(t)
	u.logIn(c)
	u.given(strings.Replace(group("chatty", 2), "exec cat", "while :; do echo hello; sleep 0.2; done", 1), "apply", "--wait", "-f", "-")
	// Commands that follow notice the end of the reader when they print something: chatty-2 always changes.
	ctx, cancel := context.WithCancel(t.Context())
	var changing sync.WaitGroup
	changing.Go(func() {
		for ctx.Err() == nil {
			cmd := exec.CommandContext(ctx, u.program, "restart", "chatty-2", "--wait")
			cmd.Env = u.env
			_ = cmd.Run() // it is cancelled at the end
		}
	})
	t.Cleanup(func() { cancel(); changing.Wait() })
	for _, test := range []struct{ command, reader string }{
		{"get instances --group chatty", "head -1"},
		{"get instances --group chatty", "true"},
		{"describe instance chatty-1", "head -1"},
		{"export group chatty", "true"},
		{"logs chatty-1", "true"},
		{"logs chatty-1 -f", "head -1"},
		{"logs -f --group chatty", "head -1"},
		{"get instances --group chatty --watch", "head -1"},
		{"events --group chatty", "head -1"},
		{"events -o json", "head -1"},
		{"attach chatty-1 --linger 1h </dev/null", "head -1"},
		{"--help", "true"},
		{"completion bash", "head -1"},
	} {
		t.Run(test.command+" | "+test.reader, func(t *testing.T) {
			t.Parallel()
			r := &running{t: t, cmd: exec.CommandContext(cluster.Bounded(t), "bash", "-c", "orrery "+test.command+" | "+test.reader+"; exit ${PIPESTATUS[0]}"), ended: make(chan struct{})}
			r.cmd.Dir, r.cmd.Env = u.home, u.env
			r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
			r.begin()
			got := r.wait()
			stderr := endOfChatty2.ReplaceAllString(got.stderr, "")
			if got.code != 0 && got.code != 141 || stderr != "" || test.reader == "head -1" && strings.Count(got.stdout, "\n") != 1 {
				t.Errorf("exit code %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
			}
		})
	}
}
