package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatCannotWorkIsSaidInOneSentenceWithExit2(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	taken := busy.Addr().String()
	// Every case gets free ports and a new directory. Its own flags come later and take
	// precedence.
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"a busy API address", []string{"-listen", taken}, "the address " + taken + " is already in use by another program: stop it, or choose another with -listen (port 0 picks a free one)"},
		{"a busy etcd address", []string{"-etcd-listen", taken}, "the address " + taken + " is already in use by another program: stop it, or choose another with -etcd-listen (port 0 picks a free one)"},
		{"a busy address for nodes", []string{"-nodes-listen", taken}, "the address " + taken + " is already in use by another program: stop it, or choose another with -nodes-listen (port 0 picks a free one)"},
		{"an address for nodes without a next port", []string{"-nodes-listen", "127.0.0.1:65535"}, `-nodes-listen "127.0.0.1:65535" must be an address with a port, below 65535 because the next one serves templates, such as 10.0.0.1:7401`},
		{"an address without a port", []string{"-listen", "nowhere"}, "cannot listen on nowhere: listen tcp: address nowhere: missing port in address; choose another address with -listen"},
		{"an address that is not ours", []string{"-etcd-listen", "192.0.2.1:0"}, "cannot listen on 192.0.2.1:0: cannot assign requested address; choose another address with -etcd-listen"},
		{"a file where the data directory belongs", []string{"-data", file}, "the data directory " + file + " cannot be written: not a directory; make it writable, or choose another with -data"},
		{"the same with the demo", []string{"-demo", "-data", file}, "the data directory " + file + " cannot be written: not a directory; make it writable, or choose another with -data"},
		{"a directory that cannot be made", []string{"-data", "/proc/orrery"}, "the data directory /proc/orrery cannot be written: no such file or directory; make it writable, or choose another with -data"},
		{"a node name out of its alphabet", []string{"-node", "Node One"}, `-node must be 1 to 63 characters of letters, digits, _ . and -, not "Node One"`},
		{"a negative memory", []string{"-memory", "-1"}, "-memory must not be negative, is -1"},
		{"CPU no machine has", []string{"-cpu", "2000000000"}, "-cpu must be at most 1048576, is 2000000000"},
		{"a negative reservation", []string{"-reserve-memory", "-1"}, "-reserve-memory must not be negative, is -1"},
		{"a factor past all bounds", []string{"-cpu-factor", "1000"}, "-cpu-factor must be between 0 (once) and 100, is 1000"},
		{"fewer than no instances", []string{"-max-instances", "-1"}, "-max-instances must be between 0 (no limit) and 100000, is -1"},
		{"a directory that is not absolute", []string{"-policy-volumes", "/srv,maps/x"}, `-policy-volumes "maps/x" is not an absolute path without .. or a volume's name, or * for all`},
		{"a certificate without its key", []string{"-tls-cert", "a"}, "-tls-key must name the file with the private key of -tls-cert"},
		{"a missing certificate", []string{"-tls-cert", "/missing.pem", "-tls-key", "/missing.key"}, "-tls-cert: the file /missing.pem does not exist"},
		{"an ACME authority without TLS", []string{"-tls-acme-hosts", "a.example", "-tls-acme-directory", "http://a"}, "-tls-acme-directory must be an https:// URL"},
		{"a proxy that is no address", []string{"-behind-proxy", "proxy"}, `-behind-proxy "proxy" is not a network: use a form like 10.0.0.0/8, fd00::/8 or 192.0.2.7`},
		{"a lockout that would never end", []string{"-lockout-window", "0"}, "-lockout-window must be at least 1s, is 0s"},
		{"fewer than no wrong passwords", []string{"-lockout-failures", "-1"}, "-lockout-failures must be between 0 and 100, is -1"},
		{"a login provider without roles", []string{"-oidc-issuer", "https://login.example.org", "-oidc-client-id", "orrery"}, "-oidc-roles must give a role to a group, like admins=ADMIN: otherwise no user of the provider can log in"},
		{"a secret of a login provider that is not there", []string{"-oidc-client-secret-file", file + "-not"}, "-oidc-client-secret-file: open " + file + "-not: no such file or directory"},
		{"a memory that is no number", []string{"-memory", "much"}, `invalid value "much" for flag -memory: parse error; see -help`},
		{"an unknown flag", []string{"-demos"}, "flag provided but not defined: -demos; see -help"},
		{"an argument", []string{"demo"}, `unexpected argument "demo"; see -help`},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"-data", t.TempDir(), "-listen", "127.0.0.1:0"}, c.args...)
			if got, want := refused(t, args...), "standalone: "+c.want+"\n"; got != want {
				t.Errorf("stderr\n got %q\nwant %q", got, want)
			}
		})
	}
}

func TestAllAddressesWithoutTLSAreRefusedInTheWordsOfFlags(t *testing.T) {
	t.Parallel()
	got := refused(t, "-data", t.TempDir(), "-listen", ":0")
	for _, want := range []string{"standalone: -listen [::]:", "set -tls-cert and -tls-key, or -tls-acme-hosts; or -behind-proxy", "or -insecure-http"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not contain %q", got, want)
		}
	}
}

func TestVersionAndHelpAnswerAndEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flag string
		want []string
	}{
		{"-version", []string{"orrery standalone "}},
		{"-help", []string{"-demo", "-data", "-listen", "-etcd-listen", "-node", "-memory", "-cpu", "-reserve-memory", "-cpu-factor", "-max-instances", "-programs-dir", "-metrics-public", "-stop-instances"}},
	} {
		t.Run(c.flag, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run([]string{c.flag}, nil, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
				t.Errorf("exit code %d, stderr %q; want 0 and nothing", code, stderr.String())
			}
			for _, want := range c.want {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("stdout %q does not mention %q", stdout.String(), want)
				}
			}
		})
	}
}
