package arena

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/examples/arena/ping"
)

// Limits on connections.
const (
	maxConnections = 256
	// connectionTime limits a connection from accept to close.
	connectionTime = 10 * time.Second
	// legacyWait is how long an old client may take to send the byte that tells its age.
	legacyWait = 200 * time.Millisecond
	// acceptPause is the pause after a failed accept, which is usually caused by a lack of
	// file descriptors.
	acceptPause = 50 * time.Millisecond
)

// server answers network connections.
type server struct {
	listener net.Listener
	set      settings
	players  int
	wg       sync.WaitGroup

	mu     sync.Mutex // guards open and closed
	open   map[net.Conn]struct{}
	closed bool
}

// listen opens the port and starts to answer. players is the number shown as online.
func listen(set settings, players int) (*server, error) {
	l, err := net.Listen("tcp", set.address())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("failed to bind to port %d: is another server running on it? (%w)", set.port, err)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to listen on %s: check server-ip and server-port (%w)", set.address(), err)
	}
	s := &server{listener: l, set: set, players: players, open: map[net.Conn]struct{}{}}
	s.wg.Go(s.accept)
	return s, nil
}

func (s *server) addr() net.Addr { return s.listener.Addr() }

// close closes all connections and waits for them. It does nothing for a nil server.
func (s *server) close() {
	if s == nil {
		return
	}
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.open {
		conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *server) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		if !s.admit(conn) {
			conn.Close()
			continue
		}
		s.wg.Go(func() {
			defer s.dismiss(conn)
			// Invalid input from a client is not worth a log line.
			_ = s.serve(conn)
		})
	}
}

func (s *server) admit(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.open) >= maxConnections {
		return false
	}
	s.open[conn] = struct{}{}
	return true
}

func (s *server) dismiss(conn net.Conn) {
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
}

// serve handles one connection: a legacy ping, or a handshake and the following request.
func (s *server) serve(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(connectionTime)); err != nil {
		return err
	}
	r := bufio.NewReaderSize(conn, 1024)
	first, err := r.Peek(1)
	if err != nil {
		return err
	}
	if first[0] == ping.LegacyByte {
		return s.serveLegacy(conn, r)
	}
	id, body, err := ping.ReadPacket(r, ping.MaxHandshakeLen)
	if err != nil {
		return err
	}
	if id != ping.IDHandshake {
		return ping.ErrMalformed
	}
	h, err := ping.ParseHandshake(body)
	if err != nil {
		return err
	}
	if h.Next == ping.NextStatus {
		return s.serveStatus(conn, r, h)
	}
	return refuseLogin(conn, r)
}

// serveStatus answers at most one status request and one ping, in this order.
func (s *server) serveStatus(conn net.Conn, r *bufio.Reader, h ping.Handshake) error {
	told := false
	for {
		id, body, err := ping.ReadPacket(r, ping.MaxRequestLen)
		if err != nil {
			return err
		}
		switch {
		case id == ping.IDStatus && len(body) == 0 && !told:
			told = true
			answer, err := ping.AppendStatus(nil, s.status(h.Protocol))
			if err != nil {
				return err
			}
			if _, err := conn.Write(answer); err != nil {
				return err
			}
		case id == ping.IDPing && len(body) == 8:
			_, err := conn.Write(ping.AppendPacket(nil, ping.IDPing, body))
			return err
		default:
			return ping.ErrMalformed
		}
	}
}

func (s *server) serveLegacy(conn net.Conn, r *bufio.Reader) error {
	if err := conn.SetReadDeadline(time.Now().Add(legacyWait)); err != nil {
		return err
	}
	// The presence of a second byte is the only sign of the client's age.
	_, missing := r.Peek(2)
	// Unread bytes would turn the close into a reset, which may overtake the answer.
	_, _ = r.Discard(r.Buffered())
	_, err := conn.Write(ping.AppendLegacy(nil, s.status(ping.UnknownProtocol), missing == nil))
	return err
}

// refuseLogin tells a player why there is nothing to join.
func refuseLogin(conn net.Conn, r *bufio.Reader) error {
	// The login is read before the answer for the same reason as in serveLegacy.
	if _, _, err := ping.ReadPacket(r, ping.MaxLoginLen); err != nil {
		return err
	}
	const reason = `{"text":"This is an arena of Orrery: a server to watch, not to play on. Thank you for the visit!"}`
	_, err := conn.Write(ping.AppendPacket(nil, ping.IDLoginDisconnect, ping.AppendString(nil, reason)))
	return err
}
