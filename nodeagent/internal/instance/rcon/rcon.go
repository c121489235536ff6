// Package rcon sends a server one command over Source's remote console protocol, which
// Minecraft and many other servers implement
// (https://developer.valvesoftware.com/wiki/Source_RCON_Protocol).
//
// Each call opens a connection, since servers close idle ones and the login is one round
// trip. It waits for each answer before it sends the next packet, because Minecraft's server
// treats two packets that arrive together as an attack.
package rcon

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// MaxCommand bounds a command in bytes: what Minecraft's server reads at once.
	MaxCommand = 1446
	// MaxAnswer bounds the kept part of an answer, in bytes.
	MaxAnswer = 1 << 20
	// maxPause bounds a pause within an answer. Some servers never send the packet that marks
	// the end.
	maxPause = time.Second
	// minSplitPart is the size from which a part of an answer may be followed by another.
	minSplitPart = 3 << 10
	maxPacket    = 64 << 10
)

// The types of packets. A login is answered with kindCommand.
const (
	kindAnswer  = 0
	kindCommand = 2
	kindLogin   = 3
)

// The packet ids.
const (
	idLogin   = 1
	idCommand = 2
	idEnd     = 3
	idRefused = -1
)

// Answer is a server's answer to a command.
type Answer struct {
	Text string
	// Incomplete is true if the server received the command, but its answer may be
	// incomplete, because it was silent for too long or closed the connection.
	Incomplete bool
}

// Run sends a command to the server at address and returns the answer. All errors mean that
// the command was not sent: Unavailable if the server does not answer, Denied if it refuses
// the password, Invalid if the command is too long, Conflict if it speaks another protocol.
func Run(ctx context.Context, address, password, command string) (Answer, error) {
	if len(command) > MaxCommand {
		return Answer{}, errs.Field("command", "must be at most %d bytes over rcon, is %d", MaxCommand, len(command))
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return Answer{}, errs.New(errs.Unavailable, "the remote console at %s does not answer: %v", address, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	s := &session{conn: conn, r: bufio.NewReader(conn)}
	err = s.login(password)
	if err == nil {
		err = s.send(idCommand, kindCommand, command)
	}
	var known *errs.Error
	switch {
	case err == nil:
		return s.answer(), nil
	case errors.As(err, &known):
		return Answer{}, err
	case ctx.Err() != nil:
		return Answer{}, errs.New(errs.Unavailable, "the remote console at %s does not answer in time", address)
	}
	return Answer{}, errs.New(errs.Unavailable, "the remote console at %s closed the connection: %v", address, err)
}

type session struct {
	conn net.Conn
	r    *bufio.Reader
}

// login sends the password. Some servers send an empty answer first.
func (s *session) login(password string) error {
	if err := s.send(idLogin, kindLogin, password); err != nil {
		return err
	}
	for {
		id, kind, _, err := s.receive()
		switch {
		case err != nil:
			return err
		case id == idRefused:
			return errs.New(errs.Denied, "the server refuses the password of its remote console: set rcon.password to what the server was configured with")
		case id == idLogin && kind == kindCommand:
			return nil
		}
	}
}

// answer reads the answer to the command. If the first part may not be the whole answer, it
// sends a packet whose answer can only follow all parts.
func (s *session) answer() Answer {
	var all strings.Builder
	for {
		id, _, part, err := s.receive()
		switch {
		case err != nil:
			return Answer{all.String(), true}
		case id == idEnd:
			return Answer{all.String(), false}
		case id != idCommand:
			continue
		}
		first := all.Len() == 0
		all.WriteString(part[:min(len(part), MaxAnswer-all.Len())])
		switch {
		case first && len(part) < minSplitPart:
			return Answer{part, false}
		case first && s.send(idEnd, kindAnswer, "") != nil:
			return Answer{part, true}
		}
		_ = s.conn.SetReadDeadline(time.Now().Add(maxPause)) // on an error the next read fails
	}
}

func (s *session) send(id, kind int32, text string) error {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(text)+10))
	b = binary.LittleEndian.AppendUint32(b, uint32(id))
	b = binary.LittleEndian.AppendUint32(b, uint32(kind))
	b = append(append(b, text...), 0, 0)
	_, err := s.conn.Write(b)
	return err
}

func (s *session) receive() (id, kind int32, text string, err error) {
	var head [4]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return 0, 0, "", err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size < 10 || size > maxPacket {
		return 0, 0, "", errs.New(errs.Conflict, "the port does not speak the remote console protocol: set rcon.port to the port on which the server listens for it")
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(s.r, b); err != nil {
		return 0, 0, "", err
	}
	id, kind = int32(binary.LittleEndian.Uint32(b)), int32(binary.LittleEndian.Uint32(b[4:]))
	return id, kind, strings.TrimRight(string(b[8:]), "\x00"), nil
}
