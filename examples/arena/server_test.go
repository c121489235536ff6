package arena

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/orreryhq/orrery/examples/arena/ping"
)

func startServer(t *testing.T) *server {
	t.Helper()
	s, err := listen(settings{ip: "127.0.0.1", motd: "hello §there", maxPlayers: 9}, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func dial(t *testing.T, s *server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(deadline))
	return conn
}

func send(t *testing.T, conn net.Conn, data []byte) {
	t.Helper()
	if _, err := conn.Write(data); err != nil {
		t.Fatal(err)
	}
}

func handshake(next ping.Next) []byte {
	h := ping.Handshake{Protocol: 47, Host: "localhost", Port: 25565, Next: next}
	return ping.AppendPacket(nil, ping.IDHandshake, h.Append(nil))
}

func TestStatusEchoesTheProtocolOfTheClient(t *testing.T) {
	conn := dial(t, startServer(t))
	send(t, conn, ping.AppendPacket(handshake(ping.NextStatus), ping.IDStatus, nil))
	_, body, err := ping.ReadPacket(bufio.NewReader(conn), ping.MaxStatusLen)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ping.ParseStatus(body); err != nil || got.Version.Protocol != 47 {
		t.Errorf("got %+v, %v; want protocol 47", got, err)
	}
}

// TestHandshakeByteByByte simulates a slow network.
func TestHandshakeByteByByte(t *testing.T) {
	conn := dial(t, startServer(t))
	for _, b := range ping.AppendPacket(handshake(ping.NextStatus), ping.IDPing, make([]byte, 8)) {
		send(t, conn, []byte{b})
	}
	if id, body, err := ping.ReadPacket(bufio.NewReader(conn), 16); err != nil || id != ping.IDPing || len(body) != 8 {
		t.Errorf("got packet %d %x, %v", id, body, err)
	}
}

func TestLegacyPing(t *testing.T) {
	s := startServer(t)
	for _, tc := range []struct {
		name string
		ping []byte
		want string
	}{
		{"before 1.4 a single byte", []byte{0xFE}, "hello there§3§9"},
		{"1.4 and 1.5 send a second", []byte{0xFE, 0x01}, "§1\x00767\x00Arena 1.0\x00hello there\x003\x009"},
		{"1.6 sends its host too", []byte{0xFE, 0x01, 0xFA, 0, 2, 0, 'M', 0, 'C', 0, 0}, "§1\x00767\x00Arena 1.0\x00hello there\x003\x009"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn := dial(t, s)
			send(t, conn, tc.ping)
			answer, err := io.ReadAll(conn)
			if err != nil || len(answer) < 3 || answer[0] != 0xFF {
				t.Fatalf("got %x, %v", answer, err)
			}
			units := make([]uint16, binary.BigEndian.Uint16(answer[1:]))
			if err := binary.Read(bytes.NewReader(answer[3:]), binary.BigEndian, units); err != nil {
				t.Fatal(err)
			}
			if got := string(utf16.Decode(units)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLoginIsRefusedPolitely(t *testing.T) {
	s := startServer(t)
	for name, next := range map[string]ping.Next{"a login": ping.NextLogin, "a transfer": ping.NextTransfer} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, s)
			send(t, conn, ping.AppendPacket(handshake(next), 0, append(ping.AppendString(nil, "Steve"), make([]byte, 16)...)))
			r := bufio.NewReader(conn)
			id, body, err := ping.ReadPacket(r, 1024)
			if err != nil || id != ping.IDLoginDisconnect || len(body) < 2 {
				t.Fatalf("got packet %d %q, %v", id, body, err)
			}
			var reason ping.Text
			if err := json.Unmarshal(body[1:], &reason); err != nil || !strings.Contains(string(reason), "Orrery") {
				t.Errorf("the reason is %q, %v", reason, err)
			}
			if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("after the refusal: %v, want the end of the stream", err)
			}
		})
	}
}

func TestNonsenseIsHungUpOn(t *testing.T) {
	s := startServer(t)
	for name, data := range map[string][]byte{
		"a packet too long":          {0xff, 0xff, 0x7f},
		"an HTTP request":            []byte("GET / HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("Accept: */*\r\n", 8)),
		"another first packet":       ping.AppendPacket(nil, 5, nil),
		"a state nobody knows":       handshake(9),
		"a ping of the wrong length": ping.AppendPacket(handshake(ping.NextStatus), ping.IDPing, []byte("abc")),
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, s)
			send(t, conn, data)
			if answer, _ := io.ReadAll(conn); len(answer) > 0 {
				t.Errorf("answered %x", answer)
			}
		})
	}
	if _, err := ping.Ping(t.Context(), s.addr().String()); err != nil {
		t.Errorf("and now it answers nobody: %v", err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	s := startServer(t)
	idle := make([]net.Conn, maxConnections)
	for i := range idle {
		idle[i] = dial(t, s)
	}
	extra := dial(t, s)
	if _, err := extra.Read(make([]byte, 1)); err == nil {
		t.Error("one connection more than allowed got an answer")
	}
	for _, conn := range idle {
		conn.Close()
	}
	expired := time.After(deadline)
	for {
		_, err := ping.Ping(t.Context(), s.addr().String())
		if err == nil {
			return
		}
		select {
		case <-expired:
			t.Fatalf("the places are not free again: %v", err)
		default:
		}
	}
}

func TestCloseEndsOpenConnections(t *testing.T) {
	s := startServer(t)
	conn := dial(t, s)
	send(t, conn, ping.AppendPacket(handshake(ping.NextStatus), ping.IDStatus, nil))
	if _, _, err := ping.ReadPacket(bufio.NewReader(conn), ping.MaxStatusLen); err != nil {
		t.Fatal(err)
	}
	s.close() // returns before the connection's time limit
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	s.close()
}
