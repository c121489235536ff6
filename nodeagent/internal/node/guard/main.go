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
	"github.com/orreryhq/orrery/nodeagent/internal/node/deadline"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

// ready is the line that a guard prints when it is ready.
const ready = "ready\n"

// checksPerMargin is how often within a margin the deadline is read, because it may become earlier.
const checksPerMargin = 4

// retryPause is the pause before a guard retries what the host refused.
const retryPause = 100 * time.Millisecond

// Main is the main function of a guard. It reads a Spec and, once the process runs, its
// runtime.Identity as lines of JSON from stdin. It prints ready when the process may start. It
// returns the exit code: 0 if the instance is gone.
func Main(stdin io.Reader, stdout, stderr io.Writer) int {
	if err := protect(); err != nil {
		fmt.Fprintln(stderr, "guard:", err)
	}
	if err := serve(stdin, stdout); err != nil {
		fmt.Fprintln(stderr, "guard:", err)
		return 1
	}
	return 0
}

func serve(stdin io.Reader, stdout io.Writer) error {
	// Signals for an agent or a terminal must not end guards.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	lines := json.NewDecoder(bufio.NewReader(stdin))
	var spec Spec
	if err := lines.Decode(&spec); err != nil {
		return errs.WrapAs(errs.Invalid, "guard.serve", err)
	}
	g, err := newWatcher(spec)
	if err != nil {
		return err
	}
	defer g.close()
	if _, err := io.WriteString(stdout, ready); err != nil {
		return errs.WrapAs(errs.Unavailable, "guard.serve", err)
	}
	return g.watch(context.Background(), lines)
}

// watcher is a running guard.
type watcher struct {
	spec    Spec
	lock    *os.File
	file    *deadline.File
	alarm   *deadline.Alarm
	runtime *process.Runtime
	last    deadline.Deadline
}

// newWatcher opens everything that the guard needs later, so that nothing fails then.
func newWatcher(s Spec) (g *watcher, err error) {
	g = &watcher{spec: s}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	self, err := process.Identify(os.Getpid())
	if err != nil {
		return g, err
	}
	if g.lock, err = lockFor(s.RunDir, holder{self, s.Run}); err != nil {
		return g, err
	}
	if err = removeNote(s.RunDir); err != nil {
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

func (g *watcher) close() {
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

// watch waits until the instance has exited, or kills it.
func (g *watcher) watch(ctx context.Context, lines *json.Decoder) error {
	identities := make(chan *runtime.Identity, 1)
	go func() {
		id := new(runtime.Identity)
		if lines.Decode(id) != nil {
			id = nil
		}
		identities <- id
	}()
	var identity *runtime.Identity
	var p runtime.Process
	var exited <-chan struct{}
	var again <-chan time.Time
	for {
		if g.due() {
			return g.end(ctx, p, identity, true)
		}
		select {
		case <-exited:
			return nil
		case <-g.alarm.Rings():
			continue
		case identity = <-identities:
			if identity == nil { // the agent died during the start: no agent will adopt the process
				return g.end(ctx, nil, nil, false)
			}
			identities = nil
		case <-again:
		}
		var err error
		if p, err = g.adopt(ctx, *identity); err != nil { // it is unknown whether the process runs
			again = time.After(retryPause)
			continue
		}
		exited, again = p.Exited(), nil
	}
}

// due reports whether it is time to kill, and otherwise sets the alarm. If the file cannot be
// read, the last deadline stays in force.
func (g *watcher) due() bool {
	if d, err := g.file.Read(); err == nil && d.Boot == g.last.Boot {
		g.last = d
	}
	now := deadline.Now()
	g.alarm.Set(min(g.last.KillAt(), now.Add(max(g.last.Margin/checksPerMargin, time.Millisecond))))
	return now >= g.last.KillAt()
}

func (g *watcher) adopt(ctx context.Context, id runtime.Identity) (runtime.Process, error) {
	return g.runtime.Adopt(ctx, runtime.Spec{InstanceID: g.spec.Instance, RunDir: g.spec.RunDir}, id)
}

// end kills the instance and returns when all of it is gone. Without an identity it finds the
// process by its marks. It retries until ctx ends, because it may be the only one to do it.
func (g *watcher) end(ctx context.Context, p runtime.Process, identity *runtime.Identity, expired bool) error {
	if expired {
		note := Note{Run: g.spec.Run, Deadline: g.last.At, At: time.Now().UTC()}
		if err := note.write(g.spec.RunDir); err != nil { // kill it anyway
			fmt.Fprintln(os.Stderr, "guard:", err)
		}
	}
	if identity == nil {
		identity = &runtime.Identity{BootID: g.last.Boot}
	}
	for {
		var err error
		if p == nil {
			p, err = g.adopt(ctx, *identity)
		}
		if err == nil {
			err = p.Kill(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "guard:", err)
		<-time.After(retryPause)
	}
}
