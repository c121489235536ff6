package ping

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"time"
)

// defaultTimeout limits a Ping whose context has no deadline.
const defaultTimeout = 5 * time.Second

// Ping asks the server at addr ("host:port") for its status and measures the latency. It
// ends with ctx, or after 5 s if ctx has no deadline. It does not retry: a server that does
// not listen yet causes an error at once.
func Ping(ctx context.Context, addr string) (Status, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
	}
	s, err := ask(ctx, addr)
	if err != nil {
		return Status{}, fmt.Errorf("ping %s: %w", addr, err)
	}
	return s, nil
}

func ask(ctx context.Context, addr string) (Status, error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return Status{}, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return Status{}, fmt.Errorf("the port must be a number: %w", err)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return Status{}, err
	}
	defer conn.Close()
	// The end of the context interrupts blocked reads and writes by a deadline in the past.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	h := Handshake{Protocol: UnknownProtocol, Host: host, Port: uint16(port), Next: NextStatus}
	request := AppendPacket(nil, IDHandshake, h.Append(nil))
	request = AppendPacket(request, IDStatus, nil)
	if _, err := conn.Write(request); err != nil {
		return Status{}, err
	}
	r := bufio.NewReader(conn)
	body, err := expect(r, IDStatus, MaxStatusLen)
	if err != nil {
		return Status{}, err
	}
	s, err := ParseStatus(body)
	if err != nil {
		return Status{}, err
	}
	s.Latency, err = latency(conn, r)
	return s, err
}

func latency(conn net.Conn, r *bufio.Reader) (time.Duration, error) {
	start := time.Now()
	payload := binary.BigEndian.AppendUint64(nil, uint64(start.UnixNano()))
	if _, err := conn.Write(AppendPacket(nil, IDPing, payload)); err != nil {
		return 0, err
	}
	pong, err := expect(r, IDPing, MaxRequestLen)
	if err != nil {
		return 0, err
	}
	if string(pong) != string(payload) {
		return 0, fmt.Errorf("%w: the pong carries something else than the ping", ErrMalformed)
	}
	return time.Since(start), nil
}

func expect(r *bufio.Reader, id int32, limit int) ([]byte, error) {
	got, body, err := ReadPacket(r, limit)
	if err != nil {
		return nil, err
	}
	if got != id {
		return nil, fmt.Errorf("%w: packet %#x where %#x belongs", ErrMalformed, got, id)
	}
	return body, nil
}
