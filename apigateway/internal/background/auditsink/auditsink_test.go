package auditsink

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/telemetry"
)

func entry(n int) account.AuditEntry {
	return account.AuditEntry{
		AuditMark: account.AuditMark{ID: fmt.Sprint(n), Username: "ann", Action: "group.update", ResourceType: "group", ResourceID: "lobby"},
		Details:   "a\nb", After: json.RawMessage(`{"env":"***"}`),
	}
}

// copied runs a sink until it has copied a number of entries.
func copied(t *testing.T, target string, entries int) {
	t.Helper()
	s, err := New(target, slog.New(slog.DiscardHandler), telemetry.NewMetrics(prometheus.NewRegistry(), "test"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range entries {
		s.Put(entry(n), int64(100+n))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // queued entries are still copied
	s.Run(ctx)
}

func TestFileGetsOneJSONLinePerEntry(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	copied(t, file, 2)
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	copied(t, file, 1)
	for name, want := range map[string]int{file + ".1": 2, file: 1} {
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(got), "\n"), "\n")
		if len(lines) != want {
			t.Fatalf("%s has %d lines, want %d: %s", name, len(lines), want, got)
		}
		var one struct {
			Username, Action, Details, Class, Result string
			Revision                                 int64
			After                                    map[string]any
		}
		if err := json.Unmarshal([]byte(lines[0]), &one); err != nil || one.Username != "ann" || one.Revision != 100 || one.Class != "CHANGE" || one.Result != "SUCCESS" || one.After["env"] != "***" {
			t.Errorf("%+v, %v", one, err)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestSyslogServerGetsEachEntry(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	copied(t, "udp://"+server.LocalAddr().String(), 2)
	_ = server.SetReadDeadline(time.Now().Add(time.Minute))
	for n := range 2 {
		packet := make([]byte, 64<<10)
		size, _, err := server.ReadFrom(packet)
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := bytes.Cut(packet[:size], []byte("{"))
		var one account.AuditEntry
		if err := json.Unmarshal(append([]byte("{"), body...), &one); err != nil || one.ID != fmt.Sprint(n) || !bytes.Contains(packet[:size], []byte(tag)) {
			t.Errorf("%s: %v", packet[:size], err)
		}
	}
}

func TestUnopenableTargetIsLoggedBeforeAnyEntry(t *testing.T) {
	log := new(proctest.Buffer)
	file := filepath.Join(t.TempDir(), "missing", "audit.log")
	s, err := New(file, slog.New(slog.NewTextHandler(log, nil)), telemetry.NewMetrics(prometheus.NewRegistry(), "test"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Run(ctx)
	if text := log.String(); !strings.Contains(text, "cannot be opened") || !strings.Contains(text, file) {
		t.Errorf("the log says %q", text)
	}
}

func TestPutDropsEntriesWhenQueueIsFull(t *testing.T) {
	registry := prometheus.NewRegistry()
	s, err := New(filepath.Join(t.TempDir(), "x"), slog.New(slog.DiscardHandler), telemetry.NewMetrics(registry, "test"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range maxWaiting + 3 {
		s.Put(entry(n), 1)
	}
	all, err := registry.Gather()
	if err != nil || len(all) != 1 || all[0].GetMetric()[0].GetCounter().GetValue() != 3 {
		t.Errorf("%v, %v", all, err)
	}
}

// The pipe has no reader, so even opening it blocks.
func TestStuckTargetDoesNotBlockShutdown(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	log := new(proctest.Buffer)
	s, err := New(pipe, slog.New(slog.NewTextHandler(log, nil)), telemetry.NewMetrics(prometheus.NewRegistry(), "test"))
	if err != nil {
		t.Fatal(err)
	}
	s.patience = time.Millisecond
	s.Put(entry(0), 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Run(ctx)
	if !strings.Contains(log.String(), "were not copied") {
		t.Errorf("the log has %q", log)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0) // unblocks the writer
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
}

func TestCheckValidatesTargets(t *testing.T) {
	for target, ok := range map[string]bool{
		"": true, "syslog": true, "/var/log/a": true, "a.log": true, "udp://log:514": true, "tcp://[::1]:514": true,
		"udp://log": false, "http://log:80": false, "udp://log:514/x": false,
	} {
		if err := Check(target); (err == nil) != ok || err != nil && errs.FieldOf(err) != "audit.sink" {
			t.Errorf("%q: %v", target, err)
		}
	}
	var none *Sink
	none.Put(entry(0), 1)
	none.Run(t.Context())
}
