package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"strconv"
	"strings"
)

// RakNetMagic marks packets outside a connection.
var RakNetMagic = []byte("\x00\xff\xff\x00\xfe\xfe\xfe\xfe\xfd\xfd\xfd\xfd\x12\x34\x56\x78")

// The first bytes of a ping outside a connection and of its answer.
const (
	UnconnectedPing = 0x01
	UnconnectedPong = 0x1c
)

// askBedrock sends RakNet's unconnected ping. Minecraft, Bedrock edition, answers with a line
// of fields (https://minecraft.wiki/w/RakNet).
func askBedrock(ctx context.Context, address string) (Answer, error) {
	conn, err := dial(ctx, "udp", address)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	ping := append(make([]byte, 9), RakNetMagic...)
	ping[0] = UnconnectedPing
	ping = binary.BigEndian.AppendUint64(ping, 0)
	pong, err := exchange(ctx, conn, address, ping)
	if err != nil {
		return Answer{}, err
	}
	answer, ok := readPong(pong)
	if !ok {
		return Answer{}, wrongAnswer(address, "does not answer as RakNet does")
	}
	return answer, nil
}

// readPong parses an unconnected pong: times and ids, the magic, and the line
// edition;message;protocol;version;players;maximum;…
func readPong(b []byte) (Answer, bool) {
	const head = 1 + 8 + 8
	if len(b) < head+len(RakNetMagic) || b[0] != UnconnectedPong || !bytes.Equal(b[head:head+len(RakNetMagic)], RakNetMagic) {
		return Answer{}, false
	}
	b = b[head+len(RakNetMagic):]
	if len(b) < 2 { // other RakNet servers send no line
		return Answer{}, true
	}
	size := int(binary.BigEndian.Uint16(b))
	b = b[2:]
	fields := strings.Split(string(b[:min(size, len(b))]), ";")
	if len(fields) < 6 {
		return Answer{}, true
	}
	players, err := strconv.ParseUint(fields[4], 10, 31)
	if err != nil {
		return Answer{}, true
	}
	limit, err := strconv.ParseUint(fields[5], 10, 31)
	if err != nil {
		return Answer{}, true
	}
	return Answer{Players: int(players), MaxPlayers: int(limit), PlayersKnown: true}, true
}
