package vm

import (
	"fmt"
	"path/filepath"
	"testing"
)

// Port is one end of a cable between two machines. Data sent to a stopped machine is lost.
type Port struct {
	local, remote, mac string
}

// Cable connects two machines only with each other.
func Cable(t testing.TB) (a, b *Port) {
	t.Helper()
	dir := directory(t)
	first, second := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	return &Port{local: first, remote: second, mac: "52:54:00:00:00:01"},
		&Port{local: second, remote: first, mac: "52:54:00:00:00:02"}
}

func (p *Port) arguments() []string {
	return []string{
		"-netdev", fmt.Sprintf("dgram,id=cable,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s", p.local, p.remote),
		"-device", "virtio-net-pci,netdev=cable,mac=" + p.mac,
	}
}
