package wakeup

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orreryhq/orrery/nodeagent/internal/instance/probe"
)

// maxPacket bounds a packet of a client, and maxAddress and maxPlayer the texts in it, in bytes.
const (
	maxPacket  = 4096
	maxAddress = 1024
	maxPlayer  = 64
)

// The states that a client of the Java edition asks for in its handshake
// (https://minecraft.wiki/w/Java_Edition_protocol/Packets).
const (
	stateStatus   = 1
	stateLogin    = 2
	stateTransfer = 3
)

// serveJava serves one connection.
func (s *server) serveJava(c net.Conn) {
	r := bufio.NewReader(io.LimitReader(c, 4*maxPacket))
	if _, err := r.Peek(1); err != nil { // it sent nothing
		return
	}
	hello, err := readPacket(r)
	if err != nil {
		s.connection()
		return
	}
	protocol, next, err := readHandshake(hello)
	if err != nil {
		s.connection()
		return
	}
	switch next {
	case stateStatus:
		s.connection()
		s.serveStatus(r, c, protocol)
	case stateLogin, stateTransfer:
		player := ""
		if p, err := readPacket(r); err == nil {
			player = readPlayer(p)
		}
		s.join(player)
		text, _ := json.Marshal(map[string]string{"text": starting})
		_, _ = c.Write(packet(probe.AppendString([]byte{0}, string(text)))) // disconnects during the login
		_, _ = io.Copy(io.Discard, r)                                       // or the client may lose the answer to a reset
	default:
		s.connection()
	}
}

// serveStatus answers the status request and the ping that follows it.
func (s *server) serveStatus(r *bufio.Reader, w io.Writer, protocol int32) {
	for range 2 {
		p, err := readPacket(r)
		switch {
		case err != nil || len(p) == 0:
			return
		case p[0] == 0:
			_, err = w.Write(packet(probe.AppendString([]byte{0}, s.status(protocol))))
		case p[0] == 1 && len(p) == 9:
			_, err = w.Write(packet(p))
		default:
			return
		}
		if err != nil {
			return
		}
	}
}

// status is what the server list shows. It has the protocol version of the client, so that the client
// lets its player join.
func (s *server) status(protocol int32) string {
	b, _ := json.Marshal(map[string]any{
		"version":     map[string]any{"name": "asleep", "protocol": protocol},
		"players":     map[string]int{"max": s.MaxPlayers, "online": 0},
		"description": map[string]string{"text": s.text()},
	})
	return string(b)
}

// packet returns a packet with its length.
func packet(body []byte) []byte {
	return append(probe.AppendVarInt(nil, int32(len(body))), body...)
}

// readPacket reads one packet without its length.
func readPacket(r *bufio.Reader) ([]byte, error) {
	n, err := probe.ReadVarInt(r)
	if err != nil {
		return nil, err
	}
	if n <= 0 || n > maxPacket {
		return nil, errors.New("a packet with an invalid length")
	}
	p := make([]byte, n)
	_, err = io.ReadFull(r, p)
	return p, err
}

// readHandshake parses a handshake: protocol version, address, port, next state.
func readHandshake(p []byte) (protocol, next int32, err error) {
	r := strings.NewReader(string(p))
	id, err := probe.ReadVarInt(r)
	if err != nil || id != 0 {
		return 0, 0, errors.Join(errors.New("not a handshake"), err)
	}
	if protocol, err = probe.ReadVarInt(r); err != nil {
		return 0, 0, err
	}
	if _, err = readText(r, maxAddress); err != nil {
		return 0, 0, err
	}
	var port uint16
	if err = binary.Read(r, binary.BigEndian, &port); err != nil {
		return 0, 0, err
	}
	next, err = probe.ReadVarInt(r)
	return protocol, next, err
}

// readPlayer returns the name in the packet that begins a login, or "".
func readPlayer(p []byte) string {
	r := strings.NewReader(string(p))
	if id, err := probe.ReadVarInt(r); err != nil || id != 0 {
		return ""
	}
	name, err := readText(r, maxPlayer)
	if err != nil || !utf8.ValidString(name) || strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return ""
	}
	return name
}

// readText reads a text of at most most bytes.
func readText(r *strings.Reader, most int32) (string, error) {
	n, err := probe.ReadVarInt(r)
	if err != nil {
		return "", err
	}
	if n < 0 || n > most {
		return "", errors.New("a text with an invalid length")
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return string(b), err
}
