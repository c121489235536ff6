package lifecycle_test

import (
	"context"
	"log/slog"
	"os"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/lifecycle"
)

func TestFirstSignalCancelsSecondExits(t *testing.T) {
	exited := make(chan int, 1)
	ctx, stop := lifecycle.WithSignals(t.Context(), slog.New(slog.DiscardHandler), func(code int) { exited <- code })
	defer stop()

	kill(t, syscall.SIGTERM)
	<-ctx.Done()
	if cause := context.Cause(ctx); cause == nil || cause.Error() != "signal: terminated" {
		t.Errorf("cause = %v", cause)
	}
	select {
	case code := <-exited:
		t.Fatalf("exited with %d at the first signal", code)
	default:
	}
	kill(t, syscall.SIGINT)
	if code := <-exited; code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}

func TestSignalWatchEndsCleanly(t *testing.T) {
	ctx, stop := lifecycle.WithSignals(t.Context(), slog.New(slog.DiscardHandler), func(int) { t.Error("exited") })
	if ctx.Err() != nil {
		t.Error("cancelled at once")
	}
	stop()
	stop()
	if ctx.Err() == nil {
		t.Error("stop did not cancel")
	}
}

func kill(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		t.Fatal(err)
	}
}
