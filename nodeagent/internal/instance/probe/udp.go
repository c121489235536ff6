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
	// resendAfter is how long to wait for an answer before a datagram is sent again. Datagrams get
	// lost, especially while a server starts.
	resendAfter = 300 * time.Millisecond
)

func askUDP(ctx context.Context, c fleet.Check, address string) error {
	question, err := c.Datagram()
	if err != nil {
		return errs.WrapAs(errs.Invalid, "probe.Ask", err)
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
	return matchPattern(c, address, answer)
}

// exchange sends a datagram repeatedly until one comes back or ctx ends.
func exchange(ctx context.Context, conn net.Conn, address string, question []byte) ([]byte, error) {
	buf := make([]byte, maxDatagram)
	for {
		if _, err := conn.Write(question); err != nil {
			return nil, noAnswer(address, err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(resendAfter)); err != nil {
			return nil, noAnswer(address, err)
		}
		if ctx.Err() != nil { // the new deadline may have replaced that of ctx
			return nil, noAnswer(address, ctx.Err())
		}
		n, err := conn.Read(buf)
		if err == nil {
			return buf[:n], nil
		}
		if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() || ctx.Err() != nil {
			return nil, noAnswer(address, err)
		}
	}
}
