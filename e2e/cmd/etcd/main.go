// Command etcd is a one-member etcd for end-to-end tests: the real server, with
// the few flags they need. A production cluster runs etcd's own program.
package main

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

func main() {
	dir := flag.String("data", "", "data directory")
	ready := flag.String("ready", "", "file that gets the client URL once the member serves")
	flag.Parse()
	if err := run(*dir, *ready); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func run(dir, ready string) error {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	any := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = any, any
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = any, any
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 10, 100
	server, err := embed.StartEtcd(cfg)
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
	endpoint := "http://" + server.Clients[0].Addr().String()
	tmp := filepath.Clean(ready) + ".new"
	if err := os.WriteFile(tmp, []byte(endpoint), 0o600); err != nil {
		return err
	}
	if err := os.Rename(tmp, ready); err != nil {
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
