package wire

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/libs/errs"
)

// Serve serves until ctx ends, then lets current requests finish for at most drain and closes the
// rest. The error is Unavailable if the listener fails before that.
func Serve(ctx context.Context, s *http.Server, l net.Listener, drain time.Duration) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return errs.WrapAs(errs.Unavailable, "wire.Serve", err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		left, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		if s.Shutdown(left) != nil {
			return s.Close()
		}
		return nil
	})
	return g.Wait()
}
