package git

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

// shell is a remote over SSH.
type shell struct {
	client  *ssh.Client
	session *ssh.Session
	in      io.WriteCloser
	out     io.Reader
	stop    func() bool
}

// dialSSH connects with the source's key to a server whose host key is known.
func dialSSH(ctx context.Context, r sources.Request, u *url.URL) (remote, error) {
	key, err := ssh.ParsePrivateKey([]byte(r.Credentials.SSHKey))
	if err != nil {
		return nil, &errs.Error{Kind: errs.Invalid, Field: "credentials.sshKey", Err: err, Message: "is no private key that can be read: give it in PEM, without a passphrase"}
	}
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "22"))
	hosts, err := known(r)
	if err != nil {
		return nil, err
	}
	config := &ssh.ClientConfig{
		User: cmp.Or(u.User.Username(), "git"), Auth: []ssh.AuthMethod{ssh.PublicKeys(key)},
		HostKeyCallback: hosts.HostKeyCallback(), HostKeyAlgorithms: hosts.HostKeyAlgorithms(address),
	}
	conn, err := r.Dialer.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, sources.Unreachable(what, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if err != nil {
		stop()
		_ = conn.Close()
		return nil, refusedBy(err)
	}
	s := &shell{client: ssh.NewClient(c, channels, requests), stop: stop}
	if err := s.start(u.Path); err != nil {
		s.Close()
		return nil, sources.Unreachable(what, err)
	}
	return s, nil
}

// known returns the host keys that a source trusts.
func known(r sources.Request) (*knownhosts.HostKeyDB, error) {
	f, err := os.CreateTemp(r.Spool, "known-hosts-*")
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "git.known", err)
	}
	defer os.Remove(f.Name())
	if _, err = f.WriteString(r.Source.KnownHosts); err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "git.known", err)
	}
	db, err := knownhosts.NewDB(f.Name())
	if err != nil {
		return nil, &errs.Error{Kind: errs.Invalid, Field: "knownHosts", Err: err, Message: "cannot be read: give what ssh-keyscan prints"}
	}
	return db, nil
}

// refusedBy returns Denied for an untrusted host key or refused credentials, and otherwise
// Unavailable.
func refusedBy(err error) error {
	switch {
	case knownhosts.IsHostKeyChanged(err):
		return &errs.Error{Kind: errs.Denied, Field: "knownHosts", Err: err, Message: "the Git server shows another key than knownHosts has: the connection may be intercepted; if the key was changed on purpose, enter the new one"}
	case knownhosts.IsHostUnknown(err):
		return &errs.Error{Kind: errs.Denied, Field: "knownHosts", Err: err, Message: "knownHosts has no key of the Git server: add what ssh-keyscan prints for it"}
	case strings.Contains(err.Error(), "unable to authenticate"):
		return &errs.Error{Kind: errs.Denied, Field: "credentials.sshKey", Err: err, Message: "the Git server does not let this key in: add its public half there"}
	}
	return sources.Unreachable(what, err)
}

func (s *shell) start(path string) error {
	var err error
	if s.session, err = s.client.NewSession(); err != nil {
		return err
	}
	if s.in, err = s.session.StdinPipe(); err != nil {
		return err
	}
	if s.out, err = s.session.StdoutPipe(); err != nil {
		return err
	}
	return s.session.Start("git-upload-pack '" + strings.ReplaceAll(path, "'", `'\''`) + "'")
}

// Close implements remote.
func (s *shell) Close() {
	s.stop()
	_ = s.client.Close()
}

// refs implements remote.
func (s *shell) refs(context.Context) (*packp.AdvRefs, error) { return decodeRefs(s.out) }

// pack implements remote.
func (s *shell) pack(_ context.Context, request []byte) (io.ReadCloser, error) {
	if _, err := s.in.Write(request); err != nil {
		return nil, sources.Unreachable(what, err)
	}
	_ = s.in.Close() // otherwise a server that waits for more keeps the answer open
	return io.NopCloser(s.out), nil
}
