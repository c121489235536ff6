package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Answer is a server's answer.
type Answer struct {
	// Players and MaxPlayers are valid if PlayersKnown.
	Players, MaxPlayers int
	PlayersKnown        bool
}

// Ask probes the server at host and port once. A check without a network probe passes. Error
// Kinds: Unavailable if there is no answer, wrapping unix.ECONNREFUSED if nothing listens
// there; Invalid if the answer is not the expected one.
func Ask(ctx context.Context, c fleet.Check, host string, port int) (Answer, error) {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	switch c.Type {
	case fleet.CheckPort:
		return Answer{}, askPort(ctx, address)
	case fleet.CheckUDP:
		return Answer{}, askUDP(ctx, c, address)
	case fleet.CheckHTTP:
		return Answer{}, askHTTP(ctx, c, address)
	case fleet.CheckMinecraft:
		return askMinecraft(ctx, host, port)
	case fleet.CheckBedrock:
		return askBedrock(ctx, address)
	case fleet.CheckA2S:
		return askA2S(ctx, address)
	case fleet.CheckNone, fleet.CheckLog, fleet.CheckHeartbeat, fleet.CheckAny, "":
	}
	return Answer{}, nil
}

func askPort(ctx context.Context, address string) error {
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// dial connects. All operations on the connection end with ctx.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, noAnswer(address, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return &ctxConn{conn, stop}, nil
}

// ctxConn is a connection whose operations end with a context.
type ctxConn struct {
	net.Conn
	stop func() bool
}

func (b *ctxConn) Close() error {
	b.stop()
	return b.Conn.Close()
}

// noAnswer is the error for a server that does not answer.
func noAnswer(address string, err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return errs.New(errs.Unavailable, "%s does not answer in time", address)
	}
	var get *url.Error
	if errors.As(err, &get) {
		err = get.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return &errs.Error{Kind: errs.Unavailable, Err: err, Message: fmt.Sprintf("%s does not answer: %v", address, err)}
}

// wrongAnswer is the error for an unexpected answer.
func wrongAnswer(address, format string, args ...any) error {
	return errs.New(errs.Invalid, "%s "+format, append([]any{address}, args...)...)
}

// matchPattern matches an answer with a check's pattern.
func matchPattern(c fleet.Check, address string, answer []byte) error {
	if c.Pattern == "" {
		return nil
	}
	pattern, err := regexp.Compile(c.Pattern)
	if err != nil {
		return errs.WrapAs(errs.Invalid, "probe.Ask", err)
	}
	if !pattern.Match(answer) {
		return wrongAnswer(address, "gives an answer that does not match %q", c.Pattern)
	}
	return nil
}
