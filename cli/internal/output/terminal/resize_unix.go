//go:build unix

package terminal

import (
	"os"
	"os/signal"
	"syscall"
)

// onResize calls resize when the size of the terminal changes, until stop is called.
func onResize(resize func()) (stop func()) {
	changes, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(changes, syscall.SIGWINCH)
	go func() {
		defer close(done)
		for range changes {
			resize()
		}
	}()
	return func() {
		signal.Stop(changes)
		close(changes)
		<-done
	}
}
