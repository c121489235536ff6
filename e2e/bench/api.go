package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/store"
)

const (
	// apiColdStarts is how often a gateway is started; apiWalks is how often all pages are
	// read.
	apiColdStarts, apiWalks = 7, 20
	// apiPage is the size of the largest page of instances.
	apiPage = 1000
	// tlsPairs is how often a load with and one without TLS alternate; tlsTime is the length of each.
	tlsPairs, tlsTime = 9, 3 * time.Second
)

// measureAPI measures one gateway with ten thousand instances, whose processes do not
// exist: the rates of single instances and of lists, and the cold start. Each rate
// alternates with that of gin alone sending as many bytes, on the same CPUs as wrk.
func measureAPI(ctx context.Context, b *bench) error {
	etcd, err := b.startEtcd("api-etcd")
	if err != nil {
		return err
	}
	defer etcd.Close()
	agent, stop, err := startStandIn(ctx)
	if err != nil {
		return err
	}
	defer stop()
	endpoint := "http://" + etcd.Clients[0].Addr().String()
	if err := seedAt(ctx, endpoint, agent); err != nil {
		return err
	}
	all, err := b.newGateways(ctx, "api", endpoint)
	if err != nil {
		return err
	}
	if err := all.measureColdStart(ctx, b, apiColdStarts, "gateway_cold_start_s", 1); err != nil {
		return err
	}
	a := &apiBench{bench: b, client: &http.Client{}}
	defer a.client.CloseIdleConnections()
	if a.gateway, err = all.start(ctx, "measured"); err != nil {
		return err
	}
	defer a.gateway.Kill()
	if a.overTLS, err = all.startTLS(ctx, "tls"); err != nil {
		return err
	}
	defer a.overTLS.Kill()
	if a.token, err = all.login(ctx, a.gateway); err != nil {
		return err
	}
	return a.measure(ctx)
}

// seedAt writes the fleet into an etcd.
func seedAt(ctx context.Context, endpoint, agent string) error {
	c, err := store.Dial([]string{endpoint}, store.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Join(ctx, time.Now()); err != nil {
		return err
	}
	return seedAPI(ctx, c, agent)
}

// measureColdStart starts gateways one after the other and measures the time from exec to
// the first answer.
func (g *gateways) measureColdStart(ctx context.Context, b *bench, starts int, id string, limit float64) error {
	client, token := &http.Client{}, ""
	var took []time.Duration
	for n := range starts {
		began := time.Now()
		one, err := g.start(ctx, fmt.Sprint("cold-", n))
		if err != nil {
			return err
		}
		if n == 0 { // the first one creates its keys and its first user
			token, err = g.login(ctx, one)
		} else if _, err = get(ctx, client, one.url+"/api/v1/services?pageSize=1", token); err == nil {
			took = append(took, time.Since(began))
		}
		client.CloseIdleConnections()
		if err := errors.Join(err, one.Stop()); err != nil {
			return err
		}
	}
	b.report(id, quantile(took, 0.5)/1000, "s", limit)
	return nil
}

// apiBench is a gateway with gin alone beside it.
type apiBench struct {
	*bench
	client  *http.Client
	gateway *gateway
	// overTLS is another gateway of the same cluster, which serves TLS.
	overTLS *gateway
	token   string
	limit   string // URL of gin alone
}

func (a *apiBench) measure(ctx context.Context) error {
	var first struct{ Data []struct{ UID string } }
	page, err := a.get(ctx, "/api/v1/services?pageSize="+strconv.Itoa(apiPage))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(page, &first); err != nil {
		return err
	}
	array, err := a.get(ctx, "/api/instances?all=true")
	if err != nil {
		return err
	}
	one, err := a.get(ctx, "/api/v1/services/"+first.Data[0].UID)
	if err != nil {
		return err
	}
	packed, err := getPacked(ctx, a.client, a.gateway.url+listPath(len(first.Data)), a.token)
	if err != nil {
		return err
	}
	stop, err := a.startLimit(ctx, map[string][]byte{"one": one, "page": page, "packed": packed, "array": array})
	if err != nil {
		return err
	}
	defer stop()
	var ids []string
	for _, i := range first.Data {
		ids = append(ids, i.UID)
	}
	err = a.measureOne(ctx, ids)
	if err == nil {
		err = a.measureTLS(ctx, ids[0])
	}
	if err == nil {
		err = a.measureLists(ctx, len(first.Data))
	}
	if errors.Is(err, errNoWrk) {
		fmt.Fprintln(os.Stderr, "  "+err.Error())
		err = nil
	}
	if err != nil {
		return err
	}
	if err := a.measureWalk(ctx); err != nil {
		return err
	}
	rss, err := memoryMiB(a.gateway.PID(), "VmHWM:")
	if err != nil {
		return err
	}
	a.report("api_rss_mib", rss, "MiB", -1)
	return nil
}

func (a *apiBench) get(ctx context.Context, path string) ([]byte, error) {
	return get(ctx, a.client, a.gateway.url+path, a.token)
}

// startLimit runs gin alone with the given bodies until stop is called.
func (a *apiBench) startLimit(ctx context.Context, bodies map[string][]byte) (stop func(), err error) {
	program, err := a.build(ctx, "./e2e/bench/hello")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(a.dir, "bodies")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for name, body := range bodies {
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o644); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(program, "-bodies", dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return nil, fmt.Errorf("gin alone does not serve: %w", err)
	}
	a.limit = strings.TrimSpace(line)
	return stop, nil
}

// of returns a load on a path of the gateway.
func (a *apiBench) of(path string, connections int) load {
	return load{url: a.gateway.url + path, token: a.token, connections: connections}
}

// than returns a load on a body of gin alone.
func (a *apiBench) than(body string, connections int) load {
	return load{url: a.limit + "/" + body, connections: connections}
}

// measureOne requests one instance repeatedly, and then all instances in turn.
func (a *apiBench) measureOne(ctx context.Context, ids []string) error {
	const connections = 32
	got, most, err := a.of("/api/v1/services/"+ids[0], connections).beside(ctx, a.than("hello", connections))
	if err != nil {
		return err
	}
	a.report("get_per_s", got.perSecond, "1/s", most.perSecond)
	a.report("get_pct", 100*got.perSecond/most.perSecond, "%", 50)
	a.report("get_p99_ms", milliseconds(got.p99), "ms", milliseconds(most.p99))
	each := a.of("/api/v1/services/"+ids[0], connections)
	if each.script, err = a.inTurns("/api/v1/services/", ids); err != nil {
		return err
	}
	if got, most, err = each.beside(ctx, a.than("one", connections)); err != nil {
		return err
	}
	a.report("get_each_per_s", got.perSecond, "1/s", most.perSecond)
	a.report("get_each_p99_ms", milliseconds(got.p99), "ms", milliseconds(most.p99))
	return nil
}

// measureTLS requests one instance over TLS, on connections that stay open, beside the same without TLS.
// The ratio is the median of short pairs, so that other work on the machine counts for both.
func (a *apiBench) measureTLS(ctx context.Context, id string) error {
	const connections = 32
	path := "/api/v1/services/" + id
	plain := a.of(path, connections)
	secure := plain
	secure.url = a.overTLS.url + path
	var with, without []rate
	var shares, cpus []float64
	for range tlsPairs {
		got, gotCPU, err := secure.runOn(ctx, a.overTLS, tlsTime)
		if err != nil {
			return err
		}
		most, mostCPU, err := plain.runOn(ctx, a.gateway, tlsTime)
		if err != nil {
			return err
		}
		with, without = append(with, got), append(without, most)
		shares, cpus = append(shares, 100*got.perSecond/most.perSecond), append(cpus, 100*mostCPU/gotCPU)
	}
	slices.Sort(shares)
	slices.Sort(cpus)
	a.report("get_tls_per_s", middle(with).perSecond, "1/s", middle(without).perSecond)
	a.report("get_tls_pct", shares[len(shares)/2], "%", 80)
	a.report("get_tls_cpu_pct", cpus[len(cpus)/2], "%", 80) // by the gateway's processor time, without wrk's
	a.report("get_tls_p99_ms", milliseconds(middle(with).p99), "ms", milliseconds(middle(without).p99))
	return nil
}

// runOn runs a load on a gateway and also returns the gateway's processor time for a request, in microseconds.
func (l load) runOn(ctx context.Context, g *gateway, d time.Duration) (r rate, cpu float64, err error) {
	before, err := cpuOf(g.PID())
	if err != nil {
		return r, 0, err
	}
	if r, err = l.run(ctx, d); err != nil {
		return r, 0, err
	}
	after, err := cpuOf(g.PID())
	return r, float64((after - before).Microseconds()) / (r.perSecond * d.Seconds()), err
}

// inTurns writes a wrk script that requests one path after the other.
func (a *apiBench) inTurns(base string, ids []string) (file string, err error) {
	file = filepath.Join(a.dir, "turns.lua")
	text := "local ids = {'" + strings.Join(ids, "','") + "'}\nlocal n = 0\n" +
		"request = function()\n  n = n % #ids + 1\n  return wrk.format(nil, '" + base + "' .. ids[n])\nend\n"
	return file, os.WriteFile(file, []byte(text), 0o644)
}

// listPath returns the path of a list of one group's instances.
func listPath(size int) string {
	return "/api/v1/services?pageSize=" + strconv.Itoa(size) + "&group=" + string(apiGroup(0))
}

// measureLists requests lists of a thousand and of all instances, both with gzip, as most
// clients do, and without.
func (a *apiBench) measureLists(ctx context.Context, size int) error {
	const many, few = 16, 4
	list := a.of(listPath(size), many)
	for _, way := range []struct{ name, limit string }{{"list%d_packed", "packed"}, {"list%d", "page"}} {
		list.packed = way.limit == "packed"
		got, most, err := list.beside(ctx, a.than(way.limit, many))
		if err != nil {
			return err
		}
		name := fmt.Sprintf(way.name, size)
		a.report(name+"_per_s", got.perSecond, "1/s", most.perSecond)
		a.report(name+"_p99_ms", milliseconds(got.p99), "ms", milliseconds(most.p99))
	}
	got, most, err := a.of("/api/instances?all=true", few).beside(ctx, a.than("array", few))
	if err != nil {
		return err
	}
	a.report("list10k_per_s", got.perSecond, "1/s", most.perSecond)
	a.report("list10k_p99_ms", milliseconds(got.p99), "ms", milliseconds(most.p99))
	return nil
}

// measureWalk reads all instances page by page.
func (a *apiBench) measureWalk(ctx context.Context) error {
	var walks []time.Duration
	for range apiWalks {
		began, seen := time.Now(), 0
		for n := 1; seen < apiInstances; n++ {
			body, err := a.get(ctx, fmt.Sprintf("/api/v1/services?pageSize=%d&page=%d", apiPage, n))
			if err != nil {
				return err
			}
			var page struct{ Data []json.RawMessage }
			if err := json.Unmarshal(body, &page); err != nil {
				return err
			}
			if len(page.Data) == 0 {
				return fmt.Errorf("the pages end after %d instances", seen)
			}
			seen += len(page.Data)
		}
		walks = append(walks, time.Since(began))
	}
	a.report("list10k_pages_p99_ms", quantile(walks, 0.99), "ms", -1)
	return nil
}
