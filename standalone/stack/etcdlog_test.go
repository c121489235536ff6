package stack

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestEtcdSaysWhyItEndsTheProcessAndIsQuietOtherwise(t *testing.T) {
	var out bytes.Buffer
	log := etcdLog(slog.New(slog.NewTextHandler(&out, nil))).With(zap.String("dir", "/data"))
	log.Info("talk")
	log.Error("listener closed")
	if out.Len() > 0 {
		t.Errorf("logged %q, want nothing of what etcd survives", &out)
	}
	func() {
		defer func() { _ = recover() }()
		log.Panic("failed to commit tx", zap.Error(errors.New("no space left on device")))
	}()
	for _, want := range []string{"level=ERROR", "ends this process", `cause="failed to commit tx"`, `error="no space left on device"`, "dir=/data"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("logged %q, want %q in it", &out, want)
		}
	}
}
