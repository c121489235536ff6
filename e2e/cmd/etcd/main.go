// Command etcd is an etcd member for end-to-end tests: the real server, with only the flags
// they need. A production cluster runs etcd's own program.
package main

import (
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// options are the command line.
type options struct {
	name, data, ready   string
	client, peer, peers string
	tick                time.Duration
	cert, key, ca       string
}

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, stderr io.Writer) int {
	var o options
	fs := flag.NewFlagSet("etcd", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.name, "name", "default", "name of the member")
	fs.StringVar(&o.data, "data", "", "data directory")
	fs.StringVar(&o.ready, "ready", "", "file that gets the client URL once the member serves")
	fs.StringVar(&o.client, "client", "127.0.0.1:0", "address for clients")
	fs.StringVar(&o.peer, "peer", "127.0.0.1:0", "address for the other members")
	fs.StringVar(&o.peers, "members", "", "all members as name=url,…; empty: this one alone")
	fs.DurationVar(&o.tick, "tick", 10*time.Millisecond, "heartbeat interval; an election takes ten")
	fs.StringVar(&o.cert, "cert", "", "certificate for clients; empty: without TLS")
	fs.StringVar(&o.key, "key", "", "key of the certificate")
	fs.StringVar(&o.ca, "ca", "", "authorities of clients, which need a certificate")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if err := serve(o); err != nil {
		fmt.Fprintln(stderr, "etcd:", err)
		return 1
	}
	return 0
}

func serve(o options) error {
	server, err := embed.StartEtcd(o.config())
	if err != nil {
		return err
	}
	defer server.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		return err
	case <-signals:
		return nil
	}
	if err := announce(o.ready, o.scheme()+"://"+server.Clients[0].Addr().String()); err != nil {
		return err
	}
	select {
	case err := <-server.Err():
		return err
	case <-signals:
		server.Server.HardStop()
		return nil
	}
}

// scheme is that of the clients' URL.
func (o options) scheme() string {
	if o.cert != "" {
		return "https"
	}
	return "http"
}

func (o options) config() *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = o.name, o.data
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	if o.cert != "" {
		cfg.ClientTLSInfo = transport.TLSInfo{CertFile: o.cert, KeyFile: o.key, TrustedCAFile: o.ca, ClientCertAuth: true}
	}
	client, peer := []url.URL{{Scheme: o.scheme(), Host: o.client}}, []url.URL{{Scheme: "http", Host: o.peer}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = client, client
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peer, peer
	cfg.InitialCluster = o.peers
	if o.peers == "" {
		cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	}
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = uint(o.tick.Milliseconds()), uint(10*o.tick.Milliseconds())
	return cfg
}

// announce writes a file atomically.
func announce(path, text string) error {
	tmp := filepath.Clean(path) + ".new"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
