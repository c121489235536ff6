package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// listeners returns the TCP addresses on which a process listens, from /proc.
func listeners(t *testing.T, pid int) []string {
	t.Helper()
	own := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		target, _ := os.Readlink(fd) // it may be closed meanwhile
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	const listening, local, state, inode = "0A", 1, 3, 9
	var found []string
	for table, host := range map[string]string{"tcp": "127.0.0.1", "tcp6": "::1"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(b))
		for lines.Scan() {
			f := strings.Fields(lines.Text())
			if len(f) <= inode || f[state] != listening || !own[f[inode]] {
				continue
			}
			port, err := strconv.ParseUint(f[local][strings.LastIndex(f[local], ":")+1:], 16, 16)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, net.JoinHostPort(host, strconv.FormatUint(port, 10)))
		}
	}
	if len(found) == 0 {
		t.Fatalf("process %d has no listener, not even the API's", pid)
	}
	return found
}

// readMeta reads a key as etcdctl does.
func readMeta(t *testing.T, endpoint string, config *tls.Config) error {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: config, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer cli.Close()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	resp, err := cli.Get(ctx, keys.Meta().String())
	if err == nil && len(resp.Kvs) != 1 {
		t.Errorf("%s has no record %s", endpoint, keys.Meta())
	}
	return err
}

// post sends a POST request and returns the status and the body.
func post(t *testing.T, transport *http.Transport, url, body string) (int, string) {
	t.Helper()
	transport.DisableKeepAlives = true
	resp, err := (&http.Client{Transport: transport}).Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func overSocket(endpoint string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(endpoint, "unix://"))
	}}
}

// readAll requests all keys from etcd's JSON gateway.
const readAll = `{"key":"AA==","range_end":"AA=="}`

func TestEtcdListensOnNothingButASocketOfItsUser(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "a b") // etcd's clients do not unescape the path of a socket
	p := start(t, data)
	for _, address := range listeners(t, p.cmd.Process.Pid) {
		// Without a deadline, this would wait until a listener that is not etcd closed the
		// connection.
		cli, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err = cli.Get(ctx, keys.Meta().String())
		cancel()
		if err == nil {
			t.Errorf("etcd answers on %s, to anybody", address)
		}
		_ = cli.Close()
		if status, said := post(t, &http.Transport{}, "http://"+address+"/v3/kv/range", readAll); status == http.StatusOK {
			t.Errorf("%s has etcd's JSON gateway: %s", address, said)
		}
		for path, answers := range map[string]func(status int, body string) bool{
			"/version":          func(_ int, body string) bool { return strings.Contains(body, "etcdserver") },
			"/debug/pprof/heap": func(status int, _ string) bool { return status == http.StatusOK },
		} {
			resp, err := http.Get("http://" + address + path)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if answers(resp.StatusCode, string(b)) {
				t.Errorf("%s answers %s to anybody: %.100q", address, path, b)
			}
		}
	}

	socket := strings.TrimPrefix(p.ready.Etcd, "unix://")
	if want := filepath.Join(data, "etcd-access", "etcd.sock"); socket != want && len(want) <= 100 {
		t.Errorf("the socket is %s, want %s", socket, want)
	}
	info, err := os.Stat(filepath.Dir(socket))
	if err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("the socket's directory: %v, %v; want 0700", info.Mode(), err)
	}
	if err := readMeta(t, p.ready.Etcd, nil); err != nil {
		t.Errorf("its own user cannot read it through the socket: %v", err)
	}
	if status, said := post(t, overSocket(p.ready.Etcd), "http://etcd/v3/kv/range", readAll); status != http.StatusNotFound {
		t.Errorf("the socket has etcd's JSON gateway: %d %s", status, said)
	}
	if p.ready.EtcdTLS != "" || p.ready.EtcdCertificates != "" {
		t.Errorf("ready.json names a listener that nobody asked for: %+v", p.ready)
	}
	p.stop()
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left after the end: %v", err)
	}
}

// clientTLS returns a TLS configuration as for etcdctl, with or without a client
// certificate.
func clientTLS(t *testing.T, dir string, certificate bool) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(ca)
	if certificate {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.pem"), filepath.Join(dir, "client-key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func TestEtcdListenDemandsACertificate(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, data, "-etcd-listen", "127.0.0.1:0")
	dir := p.ready.EtcdCertificates
	if !strings.HasPrefix(p.ready.EtcdTLS, "https://127.0.0.1:") || dir != filepath.Join(data, "etcd-access") || !strings.HasPrefix(p.ready.Etcd, "unix://") {
		t.Fatalf("ready.json: %+v", p.ready)
	}
	for _, want := range []string{"etcdctl --endpoints=" + p.ready.EtcdTLS + " ", "--cert=" + dir + "/client.pem "} {
		if !strings.Contains(p.stdout.String(), want) {
			t.Errorf("printed %s\nwant it to have %s", &p.stdout, want)
		}
	}
	with, without := clientTLS(t, dir, true), clientTLS(t, dir, false)
	if err := readMeta(t, p.ready.EtcdTLS, with); err != nil {
		t.Errorf("with the certificate: %v", err)
	}
	address := strings.TrimPrefix(p.ready.EtcdTLS, "https://")
	conn, err := tls.Dial("tcp", address, without)
	if err == nil { // with TLS 1.3 the client sees the refusal at its first read
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without a certificate: %v, want a refusal", err)
	}
	if status, said := post(t, &http.Transport{TLSClientConfig: with}, p.ready.EtcdTLS+"/v3/kv/range", readAll); status != http.StatusNotFound {
		t.Errorf("the listener has etcd's JSON gateway: %d %s", status, said)
	}
	for _, key := range []string{"ca-key.pem", "server-key.pem", "client-key.pem"} {
		if info, err := os.Stat(filepath.Join(dir, key)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want 0600", key, info.Mode(), err)
		}
	}
	p.stop()

	p = start(t, data, "-etcd-listen", "127.0.0.1:0")
	if err := readMeta(t, p.ready.EtcdTLS, with); err != nil {
		t.Errorf("after a restart the client's certificate does not work: %v", err)
	}
	p.stop()
}

func TestALongDataPathHasItsSocketInTheTemporaryDirectory(t *testing.T) {
	temp, err := os.MkdirTemp("", "s") // shorter than the test's own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	t.Setenv("TMPDIR", temp)
	data := filepath.Join(t.TempDir(), strings.Repeat("long/", 25))
	p := start(t, data)
	socket := strings.TrimPrefix(p.ready.Etcd, "unix://")
	if filepath.Dir(filepath.Dir(socket)) != temp {
		t.Errorf("the socket is %s, want it below %s", socket, temp)
	}
	if info, err := os.Stat(filepath.Dir(socket)); err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("its directory: %v, %v; want 0700", info.Mode(), err)
	}
	if err := readMeta(t, p.ready.Etcd, nil); err != nil {
		t.Error(err)
	}
	p.kill() // it leaves the socket behind
	p = start(t, data)
	if again := strings.TrimPrefix(p.ready.Etcd, "unix://"); again != socket {
		t.Errorf("the next start has the socket %s, the first %s", again, socket)
	}
	p.stop()

	// Another user has created the directory first.
	if err := os.RemoveAll(filepath.Dir(socket)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Dir(socket)); err != nil {
		t.Fatal(err)
	}
	if got := refused(t, "-data", data, "-listen", "127.0.0.1:0"); !strings.Contains(got, filepath.Dir(socket)) || !strings.Contains(got, "set TMPDIR") {
		t.Errorf("stderr %q", got)
	}
	t.Setenv("TMPDIR", filepath.Join(temp, strings.Repeat("x", 100)))
	if got := refused(t, "-data", data, "-listen", "127.0.0.1:0"); !strings.Contains(got, "longer than 100 bytes: set TMPDIR") {
		t.Errorf("stderr %q", got)
	}
}

// earlierEtcd creates the data of an etcd as configured by releases without the socket:
// with client and peer listeners on TCP, and one record.
func earlierEtcd(t *testing.T, dir string) {
	t.Helper()
	listen := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = "standalone", dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = listen, listen
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = listen, listen
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	<-server.Server.ReadyNotify()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Clients[0].Addr().String()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	if _, err := cli.Put(t.Context(), keys.Root+"groups/kept", `{"name":"kept","command":"cat"}`); err != nil {
		t.Fatal(err)
	}
}

func TestStandaloneStartsOnDataOfOtherListeners(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	earlierEtcd(t, filepath.Join(data, "etcd"))
	for _, args := range [][]string{nil, {"-etcd-listen", "127.0.0.1:0"}, {"-etcd-listen", ":0"}, nil} {
		p := start(t, data, args...)
		p.get("/api/v1/groups/kept", new(any))
		if p.ready.EtcdTLS != "" {
			if err := readMeta(t, p.ready.EtcdTLS, clientTLS(t, p.ready.EtcdCertificates, true)); err != nil {
				t.Errorf("%v: %v", args, err)
			}
		}
		p.stop()
	}
}
