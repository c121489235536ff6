package wakeup

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/nodeagent/internal/instance/probe"
)

// maxDatagram bounds a datagram in bytes. Larger ones are cut.
const maxDatagram = 2048

const (
	// pingOpen is the first byte of a ping of servers that have room.
	pingOpen = 0x02
	// openRequest is the first byte of the packet with which a client begins to connect. Its magic
	// follows at once (https://minecraft.wiki/w/RakNet).
	openRequest = 0x05
)

// serverID identifies the answers of sleeping instances. It is any number.
const serverID = 0x4f7272657279

// answerBedrock returns the answer to a datagram, or nil.
func (s *server) answerBedrock(b []byte) []byte {
	const head = 1 + 8
	if len(b) == 0 {
		return nil
	}
	isPing := b[0] == probe.UnconnectedPing || b[0] == pingOpen
	switch {
	case b[0] == openRequest && bytes.HasPrefix(b[1:], probe.RakNetMagic):
		s.join("")
	case isPing && len(b) >= head+len(probe.RakNetMagic) && bytes.HasPrefix(b[head:], probe.RakNetMagic):
		s.connection()
		return s.pong(b[1:head])
	default:
		s.connection()
	}
	return nil
}

// pong answers a ping that was sent at a time.
func (s *server) pong(at []byte) []byte {
	text := strings.NewReplacer(";", ",", "\n", " ").Replace(s.text())
	line := fmt.Sprintf("MCPE;%s;0;asleep;0;%d;%d;asleep;Survival;1;%d;%d;", text, s.MaxPlayers, uint64(serverID), s.Port, s.Port)
	out := append([]byte{probe.UnconnectedPong}, at...)
	out = binary.BigEndian.AppendUint64(out, serverID)
	out = append(out, probe.RakNetMagic...)
	out = binary.BigEndian.AppendUint16(out, uint16(len(line)))
	return append(out, line...)
}
