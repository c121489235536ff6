package guard

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/deadline"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

// ready is the line that says that a guard stands.
const ready = "ready\n"

// looks is how often within a margin the deadline is read, although no alarm rang:
// it may have been drawn in.
const looks = 4

// tryAgain is the pause before a guard tries again what the host refused it.
const tryAgain = 100 * time.Millisecond

// Main is the guard's program. It reads a Spec and, once there is something to
// guard, its runtime.Identity, a line of JSON each, and says when it stands. It
// returns the exit code: 0 when the instance has gone.
func Main(stdin io.Reader, stdout, stderr io.Writer) int {
	if err := endure(); err != nil {
		fmt.Fprintln(stderr, "guard:", err)
	}
	if err := serve(stdin, stdout); err != nil {
		fmt.Fprintln(stderr, "guard:", err)
		return 1
	}
	return 0
}

func serve(stdin io.Reader, stdout io.Writer) error {
	// What ends an agent or a terminal is not meant for the instances.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	lines := json.NewDecoder(bufio.NewReader(stdin))
	var spec Spec
	if err := lines.Decode(&spec); err != nil {
		return errs.As(errs.Invalid, "guard.serve", err)
	}
	g, err := stand(spec)
	if err != nil {
		return err
	}
	defer g.fall()
	if _, err := io.WriteString(stdout, ready); err != nil {
		return errs.As(errs.Unavailable, "guard.serve", err)
	}
	return g.watch(context.Background(), lines)
}

// sentry is a guard at its post.
type sentry struct {
	spec    Spec
	lock    *os.File
	file    *deadline.File
	alarm   *deadline.Alarm
	runtime *process.Runtime
	last    deadline.Deadline
}

// stand takes everything that is needed later, when nothing may fail any more.
func stand(s Spec) (g *sentry, err error) {
	g = &sentry{spec: s}
	defer func() {
		if err != nil {
			g.fall()
		}
	}()
	self, err := process.Identify(os.Getpid())
	if err != nil {
		return g, err
	}
	if g.lock, err = take(s.RunDir, holder{self, s.Run}); err != nil {
		return g, err
	}
	if err = forget(s.RunDir); err != nil {
		return g, err
	}
	if g.file, err = deadline.Load(s.Deadline); err != nil {
		return g, err
	}
	if g.last, err = g.file.Read(); err != nil {
		return g, err
	}
	if g.alarm, err = deadline.NewAlarm(); err != nil {
		return g, err
	}
	g.runtime, err = process.New(process.Config{Tree: cgroup.At(s.Tree), Owner: s.Owner, BootID: g.last.Boot})
	return g, err
}

func (g *sentry) fall() {
	if g.alarm != nil {
		g.alarm.Close()
	}
	if g.file != nil {
		g.file.Close()
	}
	if g.lock != nil {
		_ = g.lock.Close()
	}
}

// watch waits until the instance has gone, or ends it.
func (g *sentry) watch(ctx context.Context, lines *json.Decoder) error {
	told := make(chan *runtime.Identity, 1)
	go func() {
		id := new(runtime.Identity)
		if lines.Decode(id) != nil {
			id = nil
		}
		told <- id
	}()
	var whom *runtime.Identity
	var p runtime.Process
	var exited <-chan struct{}
	var again <-chan time.Time
	for {
		if g.due() {
			return g.end(ctx, p, whom, true)
		}
		select {
		case <-exited:
			return nil
		case <-g.alarm.Rings():
			continue
		case whom = <-told:
			if whom == nil { // the agent died with the start half done: nobody knows of this run
				return g.end(ctx, nil, nil, false)
			}
			told = nil
		case <-again:
		}
		var err error
		if p, err = g.adopt(ctx, *whom); err != nil { // nobody can tell now whether it lives
			again = time.After(tryAgain)
			continue
		}
		exited, again = p.Exited(), nil
	}
}

// due reports whether the deadline has passed, and else sets the alarm. A file that
// cannot be read any more leaves what was last read.
func (g *sentry) due() bool {
	if d, err := g.file.Read(); err == nil && d.Boot == g.last.Boot {
		g.last = d
	}
	now := deadline.Now()
	g.alarm.Set(min(g.last.KillAt(), now.Add(max(g.last.Margin/looks, time.Millisecond))))
	return now >= g.last.KillAt()
}

func (g *sentry) adopt(ctx context.Context, id runtime.Identity) (runtime.Process, error) {
	return g.runtime.Adopt(ctx, runtime.Spec{InstanceID: g.spec.Instance, RunDir: g.spec.RunDir}, id)
}

// end kills the instance, and returns when nothing of it is left. Of one that was
// never told the wrapper is not known: then it is found by its marks. What the host
// refuses is tried again until ctx ends: nobody else may be there to do it.
func (g *sentry) end(ctx context.Context, p runtime.Process, whom *runtime.Identity, expired bool) error {
	if expired {
		note := Note{Run: g.spec.Run, Deadline: g.last.At, At: time.Now().UTC()}
		if err := note.leave(g.spec.RunDir); err != nil { // no reason to let it live
			fmt.Fprintln(os.Stderr, "guard:", err)
		}
	}
	if whom == nil {
		whom = &runtime.Identity{BootID: g.last.Boot}
	}
	for {
		var err error
		if p == nil {
			p, err = g.adopt(ctx, *whom)
		}
		if err == nil {
			err = p.Kill(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "guard:", err)
		<-time.After(tryAgain)
	}
}
