package dropin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
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
	// Args are the arguments after the program's name.
	Args []string
	// Env is the complete environment as NAME=VALUE. PATH is added if missing.
	Env []string
	// WorkDir is the working directory. Empty means the root directory.
	WorkDir string
	// Input is the standard input.
	Input []byte
	// Output receives the standard output, at most OutputBytes of it. The program is killed if it
	// prints more or if Output fails. Nil discards the output.
	Output      io.Writer
	OutputBytes int64
	// Timeout is the time after which the program is killed.
	Timeout time.Duration
	// Secrets are masked in the standard error output.
	Secrets []string
	// Unheard drops the standard error output, so that it appears neither in said nor in errors.
	Unheard bool
}

// ErrLate is wrapped in the error if the program did not end in time.
var ErrLate = errors.New("too late")

const (
	defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// drained bounds the wait for the end of the output after the kill. Only a process that left
	// the group can still hold the pipe open.
	drained = 5 * time.Second
	// busyEvery and busyTries bound the wait for a program file that is open for writing.
	busyEvery, busyTries = 50 * time.Millisecond, 600
)

// Run runs a program until it ends. said are the last lines of its standard error, masked. In
// addition to Find's errors, it returns Unavailable if the program cannot be started, fails, does
// not end in time or leaves a process that holds its output open, TooLarge if it prints too much,
// Canceled if ctx ends, and errors of Output. After an error, discard what Output received.
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
		return said, failed(job, fmt.Sprintf("left a process that still had its standard output open after %s, so the output may be incomplete: "+
			"redirect the output of background processes", drained), said, nil)
	}
	return said, nil
}

func failed(job Job, how, said string, cause error) error {
	message := "the program " + job.Program + " " + how
	switch {
	case said != "":
		message += ": " + said
	case !job.Unheard:
		message += " and printed nothing on its standard error"
	}
	return &errs.Error{Kind: errs.Unavailable, Message: message, Err: cause}
}

// run starts a program, waits until it or ctx ends, and kills the rest of its process group.
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
			stop() // the output is not accepted, so kill the program
		}
	})
	copying.Go(func() { _, _ = io.Copy(tail, pipes.said.r) })
	copying.Go(func() { _, _ = pipes.in.w.Write(job.Input); pipes.in.w.Close() })
	await(cmd.Process.Pid)
	if !done() {
		<-killed // the pid may belong to another process later
	}
	_ = syscall.Kill(group, syscall.SIGKILL) // the pid is not reaped yet
	state, err := cmd.Process.Wait()
	pipes.drain()
	copying.Wait()
	return state, err
}

// await blocks until a child has ended, without reaping it.
func await(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// pipe connects one of a program's standard files.
type pipe struct{ r, w *os.File }

// pipes are a program's standard files. start closes the program's ends.
type pipes struct{ in, out, said pipe }

// start starts the program in its own process group.
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
		select { // the program file is being written
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(busyEvery):
		}
	}
}

// drain bounds the remaining reads of the output and stops writing the input.
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
	if slices.ContainsFunc(env, func(one string) bool { return strings.HasPrefix(one, "PATH=") }) {
		return env
	}
	return append([]string{defaultPath}, env...)
}

// bounded passes on at most left bytes. err says why it stopped. cut is true if the end of the
// output was not read.
type bounded struct {
	w    io.Writer
	left int64
	err  error
	cut  bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		b.err = errs.New(errs.TooLarge, "the program printed more than allowed and was killed")
		return 0, b.err
	}
	if b.w == nil {
		return len(p), nil
	}
	n, err := b.w.Write(p)
	b.err = err
	return n, err
}
