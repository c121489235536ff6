package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
)

const (
	// deltaBytes of the template change deltaSamples times, each time elsewhere.
	deltaBytes   = 1 << 20
	deltaSamples = 3
	// deltaBar is the permitted transfer in percent of the template.
	deltaBar = 2
)

// measureDelta changes the published template and counts what reaches a node that had all
// of it. It counts every byte in the node's network, whatever the agent reports.
func (r *running) measureDelta(ctx context.Context, b *bench) error {
	node, name := r.Nodes()[0].ID, worldName(contentSamples-1)
	if _, err := r.bring(ctx, name, node, head(r.view.Snapshot(), name).Digest); err != nil {
		return err
	}
	var moved, told []float64
	size := int64(b.contentMiB) << 20
	for n := range deltaSamples {
		before := head(r.view.Snapshot(), name).Digest
		at := size / (deltaSamples + 1) * int64(n+1)
		if err := change(filepath.Join(r.place(name), worldFile(0)), at, uint64(n)); err != nil {
			return err
		}
		changed, err := r.until(ctx, "the change", func(s *view.Snapshot) bool { return head(s, name).Digest != before })
		if err != nil {
			return err
		}
		sent, err := received(r.Nodes()[0].PID())
		if err != nil {
			return err
		}
		bytes, err := r.bring(ctx, name, node, head(changed, name).Digest)
		if err != nil {
			return err
		}
		now, err := received(r.Nodes()[0].PID())
		if err != nil {
			return err
		}
		moved = append(moved, 100*float64(now-sent)/float64(size))
		told = append(told, 100*float64(bytes)/float64(size))
	}
	b.report("template_delta_pct", median(moved), "%", 100*float64(deltaBytes)/float64(size))
	b.report("template_delta_reported_pct", median(told), "%", deltaBar)
	return nil
}

// change overwrites part of a file in place.
func change(path string, at int64, seed uint64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	content := make([]byte, deltaBytes)
	_, _ = noise(seed<<8 | 0xff).Read(content) // it never fails
	_, err = f.WriteAt(content, at)
	return errors.Join(err, f.Close())
}

// bring makes a node fetch a version of a template and returns the number of bytes that the
// node reports. It fails when the node has another version afterwards.
func (r *running) bring(ctx context.Context, name, node, digest string) (int64, error) {
	var answer struct {
		Nodes []struct {
			Status, Error string
			Bytes         int64
			Templates     []struct{ Template, Digest string }
		}
	}
	err := wire.Call(ctx, r.http, wire.Request{
		Method: http.MethodPost, URL: r.Gateways()[0] + "/api/v1/templates/sync", Token: r.token,
		Body: map[string]any{"pattern": "bench/" + name, "nodes": []fleet.NodeID{fleet.NodeID(node)}},
	}, &answer)
	if err != nil {
		return 0, err
	}
	if len(answer.Nodes) != 1 || answer.Nodes[0].Status != "OK" {
		return 0, fmt.Errorf("bringing %s to %s: %+v", name, node, answer.Nodes)
	}
	if brought := answer.Nodes[0].Templates; len(brought) != 1 || brought[0].Digest != digest {
		return 0, fmt.Errorf("bringing %s to %s: the node has %+v and not the head, version %s", name, node, brought, digest)
	}
	return answer.Nodes[0].Bytes, nil
}

// received returns how many bytes have passed the loopback interface of a process's
// network, in both directions and including headers.
func received(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "lo:"); ok {
			var bytes int64
			_, err := fmt.Sscan(rest, &bytes)
			return bytes, err
		}
	}
	return 0, fmt.Errorf("process %d has no loopback", pid)
}
