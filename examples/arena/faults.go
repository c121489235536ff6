package arena

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// startFaults starts the misbehaviour that the flags ask for. It ends with ctx and wg waits
// for it, except for the daemon, which stays.
func (a *arena) startFaults(ctx context.Context, wg *sync.WaitGroup) error {
	if a.opts.daemonBehind {
		pid, err := startDaemon(a.args, a.opts.ignoreTerm)
		if err != nil {
			return fmt.Errorf("could not start the daemon: %w", err)
		}
		a.log.info("Started a daemon with pid %s", pid)
	}
	if a.opts.burnMemory > 0 {
		wg.Go(func() { burnMemory(ctx, a.opts.burnMemory) })
	}
	for range a.opts.burnCPU {
		wg.Go(func() { burnCPU(ctx) })
	}
	if a.opts.printLines > 0 {
		wg.Go(func() { a.printLines(ctx) })
	}
	return nil
}

// crash ends like a crashing server: without saving or releasing the lock, and with a trace
// on stderr.
func (a *arena) crash() int {
	a.server.close()
	a.log.error("Encountered an unexpected exception: arena: crash asked for by --crash-after=%s\n\n%s", a.opts.crashAfter, debug.Stack())
	return a.opts.crashCode
}

// burnMemory allocates and touches that many MiB.
func burnMemory(ctx context.Context, mib int) {
	held := make([]byte, mib<<20)
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1
	}
	<-ctx.Done()
	runtime.KeepAlive(held)
}

// burnCPU keeps one core busy.
func burnCPU(ctx context.Context) {
	for ctx.Err() == nil {
	}
}

// printLines prints consecutively numbered lines, from 1, at the requested rate.
func (a *arena) printLines(ctx context.Context) {
	rate := float64(a.opts.printLines)
	tick := time.NewTicker(max(time.Millisecond, time.Duration(float64(time.Second)/rate)))
	defer tick.Stop()
	begun := time.Now()
	for printed := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int(time.Since(begun).Seconds() * rate); printed < due && ctx.Err() == nil; {
			printed++
			a.log.info("line %d", printed)
		}
	}
}
