package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
)

func TestUnreachableMarksUnansweredCalls(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		err         error
		unreachable bool
		kind        errs.Kind
	}{
		{"a connection that fails", status.Error(codes.Unavailable, "connection refused"), true, errs.Unavailable},
		{"a connection that closes", fmt.Errorf("reading: %w", io.EOF), true, errs.Unavailable},
		{"the caller's deadline", context.DeadlineExceeded, true, errs.Unavailable},
		{"a deadline of gRPC", status.Error(codes.DeadlineExceeded, "late"), true, errs.Unavailable},
		{"no leader", rpctypes.ErrNoLeader, true, errs.Unavailable},
		{"a proposal that times out", rpctypes.ErrTimeout, true, errs.Unavailable},
		{"the caller's cancellation", context.Canceled, false, errs.Canceled},
		{"no space", rpctypes.ErrNoSpace, false, errs.Exhausted},
		{"too large", rpctypes.ErrRequestTooLarge, false, errs.TooLarge},
		{"denied", rpctypes.ErrPermissionDenied, false, errs.Denied},
		{"a lease that has ended", rpctypes.ErrLeaseNotFound, false, errs.Fenced},
		{"corruption", rpctypes.ErrCorrupt, false, errs.Unavailable},
		{"an unknown failure", status.Error(codes.Unknown, "it fails"), false, errs.Unavailable},
	} {
		err := store.Wrap("test", tc.err)
		if errors.Is(err, store.ErrUnreachable) != tc.unreachable || !errs.Is(err, tc.kind) || !errors.Is(err, tc.err) {
			t.Errorf("%s: %v of kind %v", tc.name, err, errs.KindOf(err))
		}
	}
}
