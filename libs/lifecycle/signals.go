package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// WithSignals returns a context that the first SIGINT or SIGTERM cancels, with a cause that names
// the signal. A second signal calls exit with 128 + its number at once. Mains pass os.Exit. The
// returned function stops the signal handling and cancels the context.
func WithSignals(parent context.Context, log *slog.Logger, exit func(code int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case s := <-signals:
			log.Info("asked to stop; a second signal stops at once", "signal", s.String())
			cancel(fmt.Errorf("signal: %v", s))
		case <-done:
			return
		}
		select {
		case s := <-signals:
			log.Warn("second signal: exiting at once", "signal", s.String())
			exit(128 + int(s.(syscall.Signal)))
		case <-done:
		}
	})
	var once sync.Once
	return ctx, func() {
		once.Do(func() {
			signal.Stop(signals)
			close(done)
			watch.Wait()
			cancel(context.Canceled)
		})
	}
}
