package dropin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// Job is one run of a program. Program, Timeout and OutputBytes are required.
type Job struct {
	Program string
	// Args follow its name.
	Args []string
	// Env is all of its environment, as NAME=VALUE; PATH is added when it is not there.
	Env []string
	// WorkDir is where it works; "" is the root directory.
	WorkDir string
	// Input is what it may read from its standard input.
	Input []byte
	// Output gets what it prints, at most OutputBytes of it: with more it is killed, as
	// when Output fails. Nil throws it away.
	Output      io.Writer
	OutputBytes int64
	// Timeout is how long it may take before it is killed.
	Timeout time.Duration
	// Secrets are masked in what it says on its standard error.
	Secrets []string
	// Unheard keeps what it says from everybody: Run tells how it ended only.
	Unheard bool
}

// ErrLate is in the error of a program that did not end in time.
var ErrLate = errors.New("too late")

const (
	defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// drained bounds the wait for the end of the output when all is killed: only a process
	// that left the group can hold the pipe open, and what it prints would be missing.
	drained = 5 * time.Second
	// busyEvery and busyTries bound the wait for a program that is being written.
	busyEvery, busyTries = 50 * time.Millisecond, 600
)

// Run runs a program to its end. said are the last lines of its standard error, masked.
// Beside Find's errors: Unavailable when it cannot be started, ends with another code
// than 0, does not end in time or leaves a process that holds its output open, TooLarge
// when it prints more than it may, Canceled when ctx ends, and Output's own error. What
// Output got is worth something only without an error.
func (d Dir) Run(ctx context.Context, job Job) (said string, err error) {
	path, err := d.Find(job.Program)
	if err != nil {
		return "", err
	}
	out := &bounded{w: job.Output, left: job.OutputBytes}
	tail := newTail(job.Secrets)
	within, cancel := context.WithTimeoutCause(ctx, job.Timeout, ErrLate)
	defer cancel()
	state, err := run(within, path, job, out, tail)
	if !job.Unheard {
		said = tail.text()
	}
	switch {
	case out.err != nil:
		return said, out.err
	case ctx.Err() != nil:
		return said, errs.Wrap("dropin.Run", ctx.Err())
	case errors.Is(context.Cause(within), ErrLate):
		return said, failed(job, fmt.Sprintf("did not end within %s and was killed", job.Timeout), said, ErrLate)
	case err != nil:
		return said, &errs.Error{Op: "dropin.Run", Kind: errs.Unavailable, Message: fmt.Sprintf("the program %s cannot be run: %v", job.Program, err), Err: err}
	case !state.Success():
		return said, failed(job, "ended with "+state.String(), said, nil)
	case out.cut:
		return said, failed(job, fmt.Sprintf("left a process that still held its standard output open %s later, so what was printed is not whole: "+
			"close or redirect the output of what shall go on", drained), said, nil)
	}
	return said, nil
}

func failed(job Job, how, said string, cause error) error {
	message := "the program " + job.Program + " " + how
	switch {
	case said != "":
		message += ": " + said
	case !job.Unheard:
		message += " and said nothing on its standard error"
	}
	return &errs.Error{Kind: errs.Unavailable, Message: message, Err: cause}
}

// run starts a program, waits for its end or ctx's, and kills what is left of its group.
func run(ctx context.Context, path string, job Job, out *bounded, tail io.Writer) (*os.ProcessState, error) {
	// The kernel ties the death signal to the thread that started the program.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var pipes pipes
	defer pipes.close()
	cmd, err := pipes.start(ctx, path, job)
	if err != nil {
		return nil, err
	}
	group := -cmd.Process.Pid
	killed := make(chan struct{})
	done := context.AfterFunc(ctx, func() { defer close(killed); _ = syscall.Kill(group, syscall.SIGKILL) })
	var copying sync.WaitGroup
	copying.Go(func() {
		if _, err := io.Copy(out, pipes.out.r); err != nil {
			out.cut = true
			stop() // it prints what nobody takes
		}
	})
	copying.Go(func() { _, _ = io.Copy(tail, pipes.said.r) })
	copying.Go(func() { _, _ = pipes.in.w.Write(job.Input); pipes.in.w.Close() })
	await(cmd.Process.Pid)
	if !done() {
		<-killed // not later, when the pid may be somebody else's
	}
	_ = syscall.Kill(group, syscall.SIGKILL) // the pid is not reaped yet
	state, err := cmd.Process.Wait()
	pipes.drain()
	copying.Wait()
	return state, err
}

// await blocks until a child has ended, and leaves it to be reaped.
func await(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// pipe is one of a program's standard files.
type pipe struct{ r, w *os.File }

// pipes are all of them; the program has its own ends.
type pipes struct{ in, out, said pipe }

// start starts the program in a group of its own.
func (p *pipes) start(ctx context.Context, path string, job Job) (*exec.Cmd, error) {
	for _, one := range []*pipe{&p.in, &p.out, &p.said} {
		var err error
		if one.r, one.w, err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	for try := 1; ; try++ {
		cmd := &exec.Cmd{
			Path: path, Args: append([]string{path}, job.Args...), Env: environment(job.Env), Dir: "/",
			Stdin: p.in.r, Stdout: p.out.w, Stderr: p.said.w,
			SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
		}
		if job.WorkDir != "" {
			cmd.Dir = job.WorkDir
		}
		err := cmd.Start()
		if err == nil {
			return cmd, errors.Join(p.in.r.Close(), p.out.w.Close(), p.said.w.Close())
		}
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			return nil, err
		}
		select { // somebody is just putting the program there
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(busyEvery):
		}
	}
}

// drain ends the reading of what was printed, and the writing of what nobody reads.
func (p *pipes) drain() {
	deadline := time.Now().Add(drained)
	_ = p.in.w.SetDeadline(time.Now())
	_, _ = p.out.r.SetReadDeadline(deadline), p.said.r.SetReadDeadline(deadline)
}

func (p *pipes) close() {
	for _, one := range []pipe{p.in, p.out, p.said} {
		_, _ = one.r.Close(), one.w.Close()
	}
}

func environment(env []string) []string {
	for _, one := range env {
		if strings.HasPrefix(one, "PATH=") {
			return env
		}
	}
	return append([]string{defaultPath}, env...)
}

// bounded passes on as much as it may; its error is why it passed on no more. cut is
// true when the end of what was printed was not seen.
type bounded struct {
	w    io.Writer
	left int64
	err  error
	cut  bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		b.err = errs.New(errs.TooLarge, "the program printed more than it may and was killed")
		return 0, b.err
	}
	if b.w == nil {
		return len(p), nil
	}
	n, err := b.w.Write(p)
	b.err = err
	return n, err
}
