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

// Answer is what a server said of itself.
type Answer struct {
	// Players and MaxPlayers count; both are meaningless unless Told.
	Players, MaxPlayers int
	Told                bool
}

// Ask asks the server at host and port once. A check that asks nothing over the network
// is passed. Error Kinds: Unavailable when nobody answers, with unix.ECONNREFUSED in its chain when
// nobody listens there; Invalid when the answer is not the one that is expected.
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

// dial connects; whatever is done with the connection ends with ctx.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, silent(address, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return &bounded{conn, stop}, nil
}

// bounded is a connection whose waits end with a context.
type bounded struct {
	net.Conn
	stop func() bool
}

func (b *bounded) Close() error {
	b.stop()
	return b.Conn.Close()
}

// silent is the error for a server that does not answer.
func silent(address string, err error) error {
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

// odd is the error for an answer that is not the one that is expected.
func odd(address, format string, args ...any) error {
	return errs.New(errs.Invalid, "%s "+format, append([]any{address}, args...)...)
}

// matches compares an answer with a check's pattern.
func matches(c fleet.Check, address string, answer []byte) error {
	if c.Pattern == "" {
		return nil
	}
	pattern, err := regexp.Compile(c.Pattern)
	if err != nil {
		return errs.As(errs.Invalid, "probe.Ask", err)
	}
	if !pattern.Match(answer) {
		return odd(address, "answers what %q does not match", c.Pattern)
	}
	return nil
}
