// Command orrery is the command line of Orrery.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/root"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second Ctrl-C ends the program at once.
	context.AfterFunc(ctx, stop)
	return root.Run(ctx, app.New(), os.Args[1:])
}
