package probe

import (
	"context"
	"net"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	maxDatagram = 64 << 10
	// again is how long an answer to a datagram is waited for before it is sent anew:
	// datagrams get lost, also while a server starts.
	again = 300 * time.Millisecond
)

func askUDP(ctx context.Context, c fleet.Check, address string) error {
	question, err := c.Datagram()
	if err != nil {
		return errs.As(errs.Invalid, "probe.Ask", err)
	}
	conn, err := dial(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := exchange(ctx, conn, address, question)
	if err != nil {
		return err
	}
	return matches(c, address, answer)
}

// exchange sends a datagram until one comes back or ctx ends.
func exchange(ctx context.Context, conn net.Conn, address string, question []byte) ([]byte, error) {
	buf := make([]byte, maxDatagram)
	for {
		if _, err := conn.Write(question); err != nil {
			return nil, silent(address, err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(again)); err != nil {
			return nil, silent(address, err)
		}
		if ctx.Err() != nil { // the deadline just set must not outlive ctx
			return nil, silent(address, ctx.Err())
		}
		n, err := conn.Read(buf)
		if err == nil {
			return buf[:n], nil
		}
		if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() || ctx.Err() != nil {
			return nil, silent(address, err)
		}
	}
}
