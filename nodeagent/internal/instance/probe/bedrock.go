package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"strconv"
	"strings"
)

// raknetMagic marks packets outside a connection.
var raknetMagic = []byte("\x00\xff\xff\x00\xfe\xfe\xfe\xfe\xfd\xfd\xfd\xfd\x12\x34\x56\x78")

const (
	unconnectedPing = 0x01
	unconnectedPong = 0x1c
)

// askBedrock sends RakNet's unconnected ping. Minecraft, Bedrock edition, answers with a line
// of fields (https://minecraft.wiki/w/RakNet).
func askBedrock(ctx context.Context, address string) (Answer, error) {
	conn, err := dial(ctx, "udp", address)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	ping := append(make([]byte, 9), raknetMagic...)
	ping[0] = unconnectedPing
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
	if len(b) < head+len(raknetMagic) || b[0] != unconnectedPong || !bytes.Equal(b[head:head+len(raknetMagic)], raknetMagic) {
		return Answer{}, false
	}
	b = b[head+len(raknetMagic):]
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
