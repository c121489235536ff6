package main

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/orreryhq/orrery/libs/await"
)

func TestAStartWarnsWhenEtcdHasNoSpace(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, data)
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{p.ready.Etcd}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	alarm := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE}
	if _, err := etcdserverpb.NewMaintenanceClient(cli.ActiveConnection()).Alarm(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	p.kill() // it cannot record its end
	again := launch(t, data, nil)
	await.That(t, "a warning of the alarm", func() string {
		return await.Unless(strings.Contains(again.stderr.String(), "etcd member in this process has an alarm"), "%s", &again.stderr)
	})
}
