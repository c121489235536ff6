package arena

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// The exit codes in addition to --crash-code.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// Main runs the server in the current directory until it is stopped, and returns the exit
// code. args are the arguments without the program's name and subcommand. SIGTERM and
// SIGINT stop the server.
//
// When Main returns, all its goroutines have ended, except for one that may be blocked in a
// read of stdin, which cannot be interrupted.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	started := time.Now()
	if len(args) > 0 && args[0] == daemonStage {
		return runDaemonStage(args, stdout, stderr)
	}
	opts, err := parseOptions(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	log := &logger{out: stdout, err: stderr, now: time.Now}
	set, err := loadSettings(propertiesFile)
	if err != nil {
		log.error("%v", err)
		return exitError
	}
	if opts.portGiven {
		set.port = opts.port
	}
	a := &arena{opts: opts, args: args, set: set, log: log, started: started}
	return a.main(stdin)
}

// arena is one running server. Its fields belong to the goroutine of run.
type arena struct {
	opts    options
	args    []string
	set     settings
	log     *logger
	started time.Time

	lock   *lockFile // nil without --lock
	server *server   // nil until it listens
	world  *world    // nil until it is loaded
}

// main acquires what run needs and releases it afterwards.
func (a *arena) main(stdin io.Reader) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)

	if a.opts.lock != "" {
		lock, err := acquireLock(a.opts.lock, os.Getenv("ORRERY_INSTANCE_ID"))
		if err != nil {
			a.log.error("%v", err)
			return exitError
		}
		a.lock = lock
		defer lock.close()
	}

	ctx, cancel := context.WithCancel(context.Background())
	var faults sync.WaitGroup
	defer faults.Wait()
	defer cancel()
	if err := a.startFaults(ctx, &faults); err != nil {
		a.log.error("%v", err)
		return exitError
	}
	return a.run(signals, readLines(ctx, stdin))
}

// run is the main loop. It boots, and then processes the console and signals until one of
// them ends it. Console input before the end of the boot waits, as in real servers.
func (a *arena) run(signals <-chan os.Signal, stdin <-chan string) int {
	boot := time.After(a.opts.bootDelay)
	var lines <-chan string    // nil, which blocks, until booted
	var crash <-chan time.Time // nil without --crash-after
	if a.opts.crashAfter > 0 {
		crash = time.After(a.opts.crashAfter)
	}
	a.log.info("Starting arena on %s", a.set.address())
	for {
		select {
		case <-boot:
			if err := a.open(); err != nil {
				a.log.error("%v", err)
				return a.shutDown(exitError)
			}
			lines = stdin
		case line := <-lines:
			if a.obey(line) {
				return a.stop()
			}
		case sig := <-signals:
			if !a.opts.ignoreTerm {
				return a.stop()
			}
			a.log.info("Ignoring signal: %v", sig)
		case <-crash:
			return a.crash()
		}
	}
}

// open listens first, so that waiting clients wait less, and then loads the world.
func (a *arena) open() error {
	srv, err := listen(a.set, a.opts.players)
	if err != nil {
		return err
	}
	a.server = srv
	a.log.info("Listening on %s", srv.addr())
	a.log.info("Preparing level %q", a.set.level)
	if a.world, err = loadWorld(a.set.level, a.started); err != nil {
		return err
	}
	a.log.info("Done (%.3fs)! For help, type \"help\"", time.Since(a.started).Seconds())
	return nil
}

// stop saves the world, releases the lock and ends.
func (a *arena) stop() int {
	a.log.info("Stopping the server")
	code := exitOK
	if err := a.save(); err != nil {
		a.log.error("%v", err)
		code = exitError
	}
	return a.shutDown(code)
}

// shutDown closes the server and logs it, without saving.
func (a *arena) shutDown(code int) int {
	a.server.close()
	if err := a.lock.release(); err != nil {
		a.log.error("%v", err)
		code = max(code, exitError)
	}
	a.log.info("Server stopped")
	return code
}

// save writes the world if it is loaded.
func (a *arena) save() error {
	if a.world == nil {
		return nil
	}
	if err := a.world.save(time.Now()); err != nil {
		return fmt.Errorf("could not save the world: %w", err)
	}
	a.log.info("Saved the game")
	return nil
}
