package main

import (
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// startEtcd runs a one-member etcd on disk with fsync, like an operator. The name is that
// of its directory; changes modify its settings.
func (b *bench) startEtcd(name string, changes ...func(*embed.Config)) (*embed.Etcd, error) {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(b.dir, name)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = loopback, loopback
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = loopback, loopback
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	for _, change := range changes {
		change(cfg)
	}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	<-server.Server.ReadyNotify()
	return server, nil
}
