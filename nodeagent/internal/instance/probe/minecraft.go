package probe

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strconv"
)

// maxStatus bounds a status in bytes: a description and an icon of 64 by 64 pixels.
const maxStatus = 1 << 20

// askMinecraft sends the server list ping of Minecraft, Java edition: a handshake that
// requests the status for any protocol version. The answer is JSON
// (https://minecraft.wiki/w/Java_Edition_protocol/Server_List_Ping).
func askMinecraft(ctx context.Context, host string, port int) (Answer, error) {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	handshake := []byte{0}
	handshake = AppendVarInt(handshake, -1) // any version
	handshake = AppendString(handshake, host)
	handshake = binary.BigEndian.AppendUint16(handshake, uint16(port))
	handshake = append(handshake, 1) // next state: status
	request := append(AppendVarInt(nil, int32(len(handshake))), handshake...)
	request = append(request, 1, 0)
	if _, err := conn.Write(request); err != nil {
		return Answer{}, noAnswer(address, err)
	}
	status, err := readStatus(bufio.NewReader(conn))
	var network net.Error
	switch {
	case err == nil:
		return status, nil
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Answer{}, noAnswer(address, err)
	}
	return Answer{}, wrongAnswer(address, "does not speak Minecraft's protocol: %v", err)
}

// readStatus reads a status packet.
func readStatus(r *bufio.Reader) (Answer, error) {
	length, err := ReadVarInt(r)
	if err != nil {
		return Answer{}, err
	}
	if length <= 0 || length > maxStatus {
		return Answer{}, errors.New("a packet with an invalid length")
	}
	packet := bufio.NewReader(io.LimitReader(r, int64(length)))
	if id, err := ReadVarInt(packet); err != nil || id != 0 {
		return Answer{}, errors.Join(errors.New("a packet that is not a status"), err)
	}
	size, err := ReadVarInt(packet)
	if err != nil {
		return Answer{}, err
	}
	if size < 0 || size > length {
		return Answer{}, errors.New("a status longer than its packet")
	}
	var status struct {
		Players *struct{ Online, Max int }
	}
	if err := json.NewDecoder(io.LimitReader(packet, int64(size))).Decode(&status); err != nil {
		return Answer{}, err
	}
	if status.Players == nil { // a server may hide its players
		return Answer{}, nil
	}
	return Answer{Players: max(0, status.Players.Online), MaxPlayers: max(0, status.Players.Max), PlayersKnown: true}, nil
}

// AppendVarInt appends a number as ReadVarInt reads it.
func AppendVarInt(b []byte, v int32) []byte {
	return binary.AppendUvarint(b, uint64(uint32(v)))
}

// AppendString appends a text with its length in bytes.
func AppendString(b []byte, s string) []byte {
	return append(AppendVarInt(b, int32(len(s))), s...)
}

// ReadVarInt reads a number of at most 32 bits, seven per byte.
func ReadVarInt(r io.ByteReader) (int32, error) {
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		v |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return int32(v), nil
		}
	}
	return 0, errors.New("a number of more than 32 bits")
}
