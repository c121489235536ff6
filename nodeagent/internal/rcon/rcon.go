// Package rcon gives a server one command over Source's remote console, as Minecraft's
// and many other servers speak it
// (https://developer.valvesoftware.com/wiki/Source_RCON_Protocol).
//
// A call makes a connection of its own: servers drop idle ones, and the login is one
// round trip. Nothing is sent before the answer to what was sent last, since Minecraft's
// server takes two packets that arrive together for an attack.
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
	// MaxCommand is the longest command, in bytes: what Minecraft's server reads at once.
	MaxCommand = 1446
	// MaxAnswer is the most of an answer that is kept, in bytes.
	MaxAnswer = 1 << 20

	// fragment is how long a part of an answer may be after which more may come.
	fragment  = 3 << 10
	maxPacket = 64 << 10
)

// The types of packets. A login is answered by kindCommand.
const (
	kindAnswer  = 0
	kindCommand = 2
	kindLogin   = 3
)

// The ids by which answers are told apart.
const (
	idLogin   = 1
	idCommand = 2
	idEnd     = 3
	idRefused = -1
)

// Run gives the server at address a command and returns what it answers. Error Kinds:
// Unavailable when it does not answer, Denied when it refuses the password, Invalid
// when the command is too long or what answers speaks something else.
func Run(ctx context.Context, address, password, command string) (string, error) {
	if len(command) > MaxCommand {
		return "", errs.Field("command", "must be at most %d bytes over rcon, is %d", MaxCommand, len(command))
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", errs.New(errs.Unavailable, "the remote console at %s does not answer: %v", address, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	s := &session{conn: conn, r: bufio.NewReader(conn)}
	answer, err := s.run(password, command)
	var known *errs.Error
	switch {
	case err == nil || errors.As(err, &known):
		return answer, err
	case ctx.Err() != nil:
		return "", errs.New(errs.Unavailable, "the remote console at %s does not answer in time", address)
	}
	return "", errs.New(errs.Unavailable, "the remote console at %s ended the connection: %v", address, err)
}

type session struct {
	conn net.Conn
	r    *bufio.Reader
}

func (s *session) run(password, command string) (string, error) {
	if err := s.login(password); err != nil {
		return "", err
	}
	first, err := s.ask(idCommand, kindCommand, command)
	if err != nil || len(first) < fragment {
		return first, err
	}
	return s.rest(first)
}

// login sends the password. Some servers answer with an empty answer first.
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

// ask sends a packet and returns the first answer to it.
func (s *session) ask(id, kind int32, text string) (string, error) {
	if err := s.send(id, kind, text); err != nil {
		return "", err
	}
	for {
		got, _, answer, err := s.receive()
		if err != nil || got == id {
			return answer, err
		}
	}
}

// rest asks for something whose answer can only come after all parts of the one before.
func (s *session) rest(first string) (string, error) {
	if err := s.send(idEnd, kindAnswer, ""); err != nil {
		return "", err
	}
	var all strings.Builder
	all.WriteString(first)
	for {
		id, _, part, err := s.receive()
		if err != nil || id == idEnd {
			return all.String(), err
		}
		if id == idCommand && all.Len() < MaxAnswer {
			all.WriteString(part[:min(len(part), MaxAnswer-all.Len())])
		}
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
		return 0, 0, "", errs.New(errs.Invalid, "what answers there is no remote console: rcon.port must name the port the server listens on for it")
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(s.r, b); err != nil {
		return 0, 0, "", err
	}
	id, kind = int32(binary.LittleEndian.Uint32(b)), int32(binary.LittleEndian.Uint32(b[4:]))
	return id, kind, strings.TrimRight(string(b[8:]), "\x00"), nil
}
