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

	// quiet is how long a server may say nothing amid an answer: some never answer what
	// is to come after it.
	quiet = time.Second
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

// Answer is what a server answers to a command.
type Answer struct {
	Text string
	// Incomplete is true when the server has the command, but did not say all of its
	// answer, or that it was all: it was silent for too long, or ended the connection, as
	// when it was told to stop.
	Incomplete bool
}

// Run gives the server at address a command and returns what it answers. Error Kinds, by
// all of which the command was not given: Unavailable when it does not answer, Denied when
// it refuses the password, Invalid when the command is too long, Conflict when what answers
// speaks something else.
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
	return Answer{}, errs.New(errs.Unavailable, "the remote console at %s ended the connection: %v", address, err)
}

type session struct {
	conn net.Conn
	r    *bufio.Reader
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

// answer reads the answer to the command that was sent. Where a first part may not be
// all, it asks for something whose answer can only come after all parts.
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
		case first && len(part) < fragment:
			return Answer{part, false}
		case first && s.send(idEnd, kindAnswer, "") != nil:
			return Answer{part, true}
		}
		_ = s.conn.SetReadDeadline(time.Now().Add(quiet)) // else what comes fails, which is as good
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
		return 0, 0, "", errs.New(errs.Conflict, "what answers there is no remote console: rcon.port must name the port the server listens on for it")
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(s.r, b); err != nil {
		return 0, 0, "", err
	}
	id, kind = int32(binary.LittleEndian.Uint32(b)), int32(binary.LittleEndian.Uint32(b[4:]))
	return id, kind, strings.TrimRight(string(b[8:]), "\x00"), nil
}
