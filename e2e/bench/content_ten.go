package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/nodeagent/client"
)

// tenFiles is the number of files in the template that ten nodes fetch at once.
const tenFiles = 64

// measureTenNodes lets ten agents fetch a template at once from one templatesvc. For
// comparison, as many plain clients fetch, hash and write the same files from a file
// server. They run once before and once after, because the disk's speed varies.
func measureTenNodes(ctx context.Context, b *bench) error {
	r, err := b.startSite(ctx, tenNodes)
	if err != nil {
		return err
	}
	defer r.close()
	world := filepath.Join(r.dir, "world")
	if err := writeWorld(world, tenFiles, int64(b.contentMiB/2)<<20, 1<<9); err != nil {
		return err
	}
	if _, err := r.publish(ctx, world, "ten"); err != nil {
		return err
	}
	idle := cpuTime()
	before, err := r.fetchPlainly(ctx, r.place("ten"))
	if err != nil {
		return err
	}
	used := cpuTime() - idle
	agents, service := spent(r.agents()), spent([]int{r.Process("templatesvc-1").PID()})
	fetched, err := r.fetchAtOnce(ctx, head(r.view.Snapshot(), "ten").Digest)
	if err != nil {
		return err
	}
	byAgents, byService := agents(), service()
	idle = cpuTime()
	after, err := r.fetchPlainly(ctx, r.place("ten"))
	if err != nil {
		return err
	}
	used = (used + cpuTime() - idle) / 2
	all := float64(len(r.Nodes()) * b.contentMiB / 2)
	plain := all / ((before + after) / 2).Seconds()
	b.report("template_ten_nodes_mib_per_s", all/fetched.Seconds(), "MiB/s", plain)
	b.report("template_ten_nodes_ratio", all/fetched.Seconds()/plain, "of plain", 1)
	perGiB := func(d time.Duration) float64 { return d.Seconds() / (all / 1024) }
	b.report("template_ten_nodes_cpu", perGiB(byAgents+byService), "s/GiB", perGiB(used))
	b.report("template_ten_nodes_service_cpu", perGiB(byService), "s/GiB", -1)
	return nil
}

// agents returns the PIDs of all nodes' agents.
func (r *running) agents() (pids []int) {
	for _, n := range r.Nodes() {
		pids = append(pids, n.PID())
	}
	return pids
}

// spent returns a function that reports the CPU time that processes have used since.
// Processes that have ended count as 0.
func spent(pids []int) func() time.Duration {
	total := func() (sum time.Duration) {
		for _, pid := range pids {
			used, _ := cpuOf(pid)
			sum += used
		}
		return sum
	}
	before := total()
	return func() time.Duration { return total() - before }
}

// fetchAtOnce measures the time until all agents have a version with every hash verified.
// It bypasses the gateway, which asks eight agents at a time.
func (r *running) fetchAtOnce(ctx context.Context, digest string) (time.Duration, error) {
	secret, err := os.ReadFile(r.SecretFile())
	if err != nil {
		return 0, err
	}
	syscall.Sync()
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for id, node := range r.view.Snapshot().Nodes.All() {
		agent := client.New(r.http, node.AgentURL, string(secret))
		group.Go(func() error {
			answer, err := agent.Warm(ctx, []string{digest})
			switch {
			case err != nil:
				return fmt.Errorf("%s: %w", id, err)
			case len(answer.Versions) != 1 || answer.Versions[0].Status != client.WarmOK:
				return fmt.Errorf("%s: %+v", id, answer.Versions)
			}
			return nil
		})
	}
	err = group.Wait()
	return time.Since(began), err
}

// fetchPlainly measures as many clients as there are nodes. Each fetches all files of a
// directory from a file server in sequence, hashes them and writes them.
func (r *running) fetchPlainly(ctx context.Context, dir string) (time.Duration, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			http.ServeFile(w, q, filepath.Join(dir, filepath.Base(q.URL.Path)))
		}),
	}
	go func() { _ = server.Serve(listener) }() // until it is closed
	defer server.Close()
	syscall.Sync()
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	var places []string
	for _, n := range r.Nodes() {
		to := filepath.Join(r.dir, "plain-"+n.ID)
		places = append(places, to)
		group.Go(func() error { return fetchAll(ctx, "http://"+listener.Addr().String(), to) })
	}
	err = group.Wait()
	took := time.Since(began)
	for _, p := range places {
		err = errors.Join(err, os.RemoveAll(p))
	}
	return took, err
}

func fetchAll(ctx context.Context, base, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	buffer := make([]byte, 256<<10)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for n := range tenFiles {
		if err := fetchOne(ctx, &http.Client{Transport: transport}, base+"/"+worldFile(n), filepath.Join(to, worldFile(n)), buffer); err != nil {
			return err
		}
	}
	return nil
}

func fetchOne(ctx context.Context, c *http.Client, from, to string, buffer []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(io.MultiWriter(out, sha256.New()), resp.Body, buffer)
	return errors.Join(err, out.Close())
}
