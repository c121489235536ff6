package git_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// keyPair returns a new key, as text and as a signer.
func keyPair(t *testing.T) (text string, signer ssh.Signer) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	if signer, err = ssh.NewSignerFromKey(private); err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block)), signer
}

// serveSSH runs git-upload-pack for clients with the key.
func serveSSH(t *testing.T, host ssh.Signer, allowed ssh.PublicKey) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(allowed.Marshal()) {
			return nil, errs.New(errs.Denied, "unknown key")
		}
		return nil, nil
	}}
	config.AddHostKey(host)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { converse(c, config, &serving) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return l.Addr().String()
}

func converse(c net.Conn, config *ssh.ServerConfig, serving *sync.WaitGroup) {
	defer c.Close()
	_, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	serving.Go(func() { ssh.DiscardRequests(requests) })
	for wanted := range channels {
		channel, requests, err := wanted.Accept()
		if err != nil {
			return
		}
		serving.Go(func() {
			defer channel.Close()
			for q := range requests {
				if q.Type != "exec" {
					_ = q.Reply(false, nil)
					continue
				}
				_ = q.Reply(true, nil)
				run := exec.Command("sh", "-c", string(q.Payload[4:]))
				run.Stdin, run.Stdout = channel, channel
				_ = run.Run()
				return
			}
		})
	}
}

func TestARepositoryIsBroughtOverSSHFromAKnownHostAlone(t *testing.T) {
	r := newRepository(t)
	commit := r.push("f", "one")
	text, mine := keyPair(t)
	stranger, _ := keyPair(t)
	_, host := keyPair(t)
	_, another := keyPair(t)
	address := serveSSH(t, host, mine.PublicKey())
	line := func(k ssh.PublicKey) string {
		return knownhosts.Line([]string{knownhosts.Normalize(address)}, k) + "\n"
	}
	s := content.TemplateSource{URL: "ssh://git@" + address + r.dir, KnownHosts: line(host.PublicKey()), Template: one}
	got, revision, err := fetch(t, s, content.SourceCredentials{SSHKey: text}, "")
	told(t, got, err, "[g/t/f  644 one]")
	if revision != commit {
		t.Errorf("revision %s", revision)
	}
	got, _, err = fetch(t, s, content.SourceCredentials{SSHKey: text}, commit)
	told(t, got, err, "[]")

	got, _, err = fetch(t, s, content.SourceCredentials{SSHKey: stranger}, "")
	refused(t, got, err, errs.Denied, "does not let this key in")
	got, _, err = fetch(t, s, content.SourceCredentials{SSHKey: "none"}, "")
	refused(t, got, err, errs.Invalid, "no private key")
	s.KnownHosts = line(another.PublicKey())
	got, _, err = fetch(t, s, content.SourceCredentials{SSHKey: text}, "")
	refused(t, got, err, errs.Denied, "another key than knownHosts has")
	s.KnownHosts = strings.ReplaceAll(line(host.PublicKey()), "127.0.0.1", "127.0.0.2")
	got, _, err = fetch(t, s, content.SourceCredentials{SSHKey: text}, "")
	refused(t, got, err, errs.Denied, "has no key of the Git server")
	s.KnownHosts = "nonsense"
	got, _, err = fetch(t, s, content.SourceCredentials{SSHKey: text}, "")
	refused(t, got, err, errs.Invalid, "cannot be read")

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	address = silent.Addr().String()
	s.URL, s.KnownHosts = "ssh://git@"+address+"/r", line(host.PublicKey())
	got, _, err = fetchBy(t, hasty, s, content.SourceCredentials{SSHKey: text}, "")
	refused(t, got, err, errs.Unavailable, "does not answer in time")
}
