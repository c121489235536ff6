package cli_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
)

// running is a command that runs while the test goes on.
type running struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr await.Text
	ended          chan struct{}
	err            error // valid after ended
}

// start starts a command.
func (u *user) start(args ...string) *running {
	u.t.Helper()
	return u.prepare(args...).begin()
}

// prepare returns a command that begin starts.
func (u *user) prepare(args ...string) *running {
	r := &running{t: u.t, cmd: u.command(args...), ended: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	return r
}

// begin starts the command of r.
func (r *running) begin() *running {
	r.t.Helper()
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		r.err = r.cmd.Wait()
	}()
	return r
}

// awaits waits until what the command printed satisfies seen.
func (r *running) awaits(what string, seen func(stdout, stderr string) bool) {
	r.t.Helper()
	await.That(r.t, what, func() string {
		var ended bool
		select {
		case <-r.ended:
			ended = true
		default:
		}
		stdout, stderr := r.stdout.String(), r.stderr.String()
		if ended && !seen(stdout, stderr) {
			r.t.Fatalf("%s ended without %s: %v\n%s%s", strings.Join(r.cmd.Args, " "), what, r.err, stdout, stderr)
		}
		return await.Unless(seen(stdout, stderr), "%s printed\n%s%s", strings.Join(r.cmd.Args, " "), stdout, stderr)
	})
}

// wait waits until the command has ended.
func (r *running) wait() result {
	r.t.Helper()
	<-r.ended
	var exited *exec.ExitError
	if r.err != nil && !errors.As(r.err, &exited) {
		r.t.Fatalf("%s: %v", strings.Join(r.cmd.Args, " "), r.err)
	}
	return result{r.cmd.ProcessState.ExitCode(), r.stdout.String(), r.stderr.String()}
}
