package ping

import (
	"encoding/binary"
	"fmt"
)

// Next is the state that a handshake requests.
type Next int32

// The states that a client may request.
const (
	NextStatus   Next = 1
	NextLogin    Next = 2
	NextTransfer Next = 3 // a login transferred from another server
)

// UnknownProtocol is the protocol version of a client that only wants the status.
const UnknownProtocol = -1

// maxHostLen is the maximum length of a handshake's host, in characters.
const maxHostLen = 255

// Handshake is the first packet of a client.
type Handshake struct {
	// Protocol is the client's protocol version, or UnknownProtocol.
	Protocol int32
	// Host and Port are what the user entered. They may be unknown to the server.
	Host string
	Port uint16
	Next Next
}

// Append appends the handshake's body, for AppendPacket with IDHandshake.
func (h Handshake) Append(dst []byte) []byte {
	dst = appendVarInt(dst, h.Protocol)
	dst = AppendString(dst, h.Host)
	dst = binary.BigEndian.AppendUint16(dst, h.Port)
	return appendVarInt(dst, int32(h.Next))
}

// ParseHandshake reads a handshake's body. Any error is ErrMalformed.
func ParseHandshake(body []byte) (Handshake, error) {
	f := fields{rest: body}
	h := Handshake{Protocol: f.varInt(), Host: f.string(maxHostLen), Port: f.uint16(), Next: Next(f.varInt())}
	if err := f.end(); err != nil {
		return Handshake{}, fmt.Errorf("handshake: %w", err)
	}
	if h.Next < NextStatus || h.Next > NextTransfer {
		return Handshake{}, fmt.Errorf("handshake: %w: no state %d", ErrMalformed, h.Next)
	}
	return h, nil
}
