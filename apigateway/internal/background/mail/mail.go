// Package mail sends a text to one address through a mail server.
//
// It uses TLS unless the server is on the same host. It neither retries nor queues mails: the
// mail server does both.
package mail

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/mail"
	"net/smtp"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// patience limits the time for sending one mail.
	patience = 30 * time.Second
	// portTLS is the port on which servers expect TLS from the first byte.
	portTLS = "465"
)

// Server is a mail server with the sender's address and credentials.
type Server struct {
	// Address is host:port.
	Address string
	// From is an address with or without a name.
	From string
	// User and Password log in. With an empty User there is no login.
	User, Password string
}

// Send sends a text. The subject must be ASCII. Send returns Invalid for an invalid address and
// Unavailable if the server did not accept the mail.
func (s Server) Send(ctx context.Context, to, subject, text string) error {
	from, err := mail.ParseAddress(s.From)
	if err != nil {
		return errs.WrapAs(errs.Invalid, "mail.Send", err)
	}
	whom, err := mail.ParseAddress(to)
	if err != nil {
		return errs.WrapAs(errs.Invalid, "mail.Send", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := s.dial(ctx)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "mail.Send", err)
	}
	defer c.Close()
	header := fmt.Sprintf("From: %s\r\nTo: %s\r\nSubject: %s\r\nDate: %s\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n",
		from, whom, subject, time.Now().Format(time.RFC1123Z))
	err = deliver(c, from.Address, whom.Address, header+strings.ReplaceAll(text, "\n", "\r\n"))
	return errs.WrapAs(errs.Unavailable, "mail.Send", err)
}

// dial opens a secure connection to the server and logs in.
func (s Server) dial(ctx context.Context) (*smtp.Client, error) {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Address)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	trust := &tls.Config{ServerName: host}
	if port == portTLS {
		conn = tls.Client(conn, trust)
	}
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if err := s.prepare(c, port, conn.RemoteAddr(), trust); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// prepare starts TLS if necessary and logs in.
func (s Server) prepare(c *smtp.Client, port string, remote net.Addr, trust *tls.Config) error {
	if port != portTLS {
		tcp, _ := remote.(*net.TCPAddr)
		offered, _ := c.Extension("STARTTLS")
		switch {
		case offered:
			if err := c.StartTLS(trust); err != nil {
				return err
			}
		case tcp == nil || !tcp.IP.IsLoopback():
			return fmt.Errorf("%s does not offer TLS: mails and the password would be sent unencrypted", s.Address)
		}
	}
	if s.User == "" {
		return nil
	}
	return c.Auth(smtp.PlainAuth("", s.User, s.Password, trust.ServerName))
}

func deliver(c *smtp.Client, from, to, message string) error {
	if err := c.Mail(from); err != nil {
		return err
	}
	if err := c.Rcpt(to); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write([]byte(message)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return c.Quit()
}
