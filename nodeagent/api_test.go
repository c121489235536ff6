package nodeagent_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/nodeagent/client"
)

func TestConsoleLinesArriveInOrderAndUnchanged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic("cat")
	plan.Stop.Command = ""
	s.online("aaaaaa", plan)
	api := s.api()
	lines := []string{"first", `say "hi" 'there' $HOME \n ; rm -rf ^A %PORT% Enter C-c`, "tab\there", "", "ümläut ☃"}
	for _, l := range lines {
		if err := api.WriteLine(t.Context(), "aaaaaa", l); err != nil {
			t.Fatal(err)
		}
	}
	await.That(t, "the lines", func() string {
		got, err := api.Tail(t.Context(), "aaaaaa", 100)
		if err != nil {
			return err.Error()
		}
		var texts []string
		for _, l := range got {
			texts = append(texts, l.Text)
		}
		return await.Unless(cmp.Equal(lines, texts), "%q", texts)
	})
	two, err := api.Tail(t.Context(), "aaaaaa", 2)
	if err != nil || len(two) != 2 || two[1].Text != "ümläut ☃" {
		t.Errorf("the last two: %+v, %v", two, err)
	}
	chunk, err := api.Read(t.Context(), "aaaaaa", 2, 4)
	if err != nil || string(chunk.Data) != "rst\n" || chunk.Next != 6 {
		t.Errorf("a piece: %q, %d, %v", chunk.Data, chunk.Next, err)
	}
	for _, bad := range []string{"a\nb", "\x01", "\x1b[A"} {
		if err := api.WriteLine(t.Context(), "aaaaaa", bad); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "line" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestLiveFiguresAndHeartbeats(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	st := s.online("aaaaaa", basic("sleep 1000"))
	api := s.api()
	if err := api.Heartbeat(t.Context(), "aaaaaa", client.Heartbeat{State: "ONLINE", Players: new(3), MaxPlayers: new(20), TPS: new(19.5)}); err != nil {
		t.Fatal(err)
	}
	i, err := api.Instance(t.Context(), "aaaaaa")
	if err != nil || i.PID != st.PID || i.Players != 3 || i.MaxPlayers != 20 || i.TPS != 19.5 || i.LastHeartbeat.IsZero() ||
		i.SaidState != "ONLINE" || i.State != fleet.Online || i.Name != "lobby-1" {
		t.Errorf("%+v, %v", i, err)
	}
	await.That(t, "the report", func() string {
		f, _, err := s.figures("aaaaaa")
		return await.Unless(err == nil && f.Players == 3, "%+v, %v", f, err)
	})
	if err := api.Heartbeat(t.Context(), "aaaaaa", client.Heartbeat{Players: new(-1)}); errs.FieldOf(err) != "players" {
		t.Errorf("negative players: %v", err)
	}
	s.order("aaaaaa", 1, fleet.OrderKill)
	s.awaitState("aaaaaa", 1, fleet.Stopped)
	if err := api.Heartbeat(t.Context(), "aaaaaa", client.Heartbeat{}); !errs.Is(err, errs.Conflict) {
		t.Errorf("a late heartbeat: %v", err)
	}
	if err := api.WriteLine(t.Context(), "aaaaaa", "hello"); !errs.Is(err, errs.Conflict) {
		t.Errorf("a line after the end: %v", err)
	}
	if _, err := api.Instance(t.Context(), "zzzzzz"); !errs.Is(err, errs.NotFound) {
		t.Errorf("an unknown instance: %v", err)
	}
}

func TestAPIRequiresClusterSecret(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	n, err := store.Get(t.Context(), s.store, keys.Node(node))
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, wrong := range []string{"", "other"} {
		if _, err := client.New(h, n.AgentURL, wrong).Instance(t.Context(), "aaaaaa"); !errs.Is(err, errs.Unauthenticated) {
			t.Errorf("secret %q: %v", wrong, err)
		}
	}
	for path, want := range map[string]int{"/livez": 200, "/nowhere": 401} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.AgentURL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := h.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

func TestNodeRecordDescribesNode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	n, err := store.Get(t.Context(), s.store, keys.Node(node))
	if err != nil {
		t.Fatal(err)
	}
	if n.Capacity.MemoryMiB != 4096 || n.Capacity.CPU != 400 || n.Capacity.DiskMiB == 0 || n.Address != "play.example.org" || n.DataUUID == "" {
		t.Errorf("%+v", n)
	}
	if !n.Offers(fleet.RuntimeProcess) || n.Offers(fleet.RuntimeDocker) || len(n.Runtimes) != len(fleet.RuntimeNames) {
		t.Errorf("runtimes %+v", n.Runtimes)
	}
	if !strings.HasPrefix(n.AgentURL, "http://127.0.0.1:") {
		t.Errorf("agent URL %q", n.AgentURL)
	}
}

func TestEnvironmentAndPlaceholders(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic("env | sort >env; echo %PORT% %NOPE% >command; sleep 1000")
	plan.Env = map[string]string{"MOTD": "%GROUP% in %REGION% on %HOST_ADDRESS%", "ORRERY_INSTANCE_ID": "forged"}
	plan.HostAddress = "%INSTANCE_NAME%.example.org"
	port := freePort(t)
	s.place("aaaaaa", 1, plan, port)
	st := s.awaitState("aaaaaa", 1, fleet.Online)
	if st.HostAddress != "lobby-1.example.org" || !strings.Contains(st.Message, "unknown placeholder %NOPE% in command") {
		t.Errorf("status %+v", st)
	}
	var env map[string]string
	await.That(t, "the files", func() string {
		c := s.running("aaaaaa", "command") // written last
		env = map[string]string{}
		for line := range strings.Lines(s.running("aaaaaa", "env")) {
			k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			env[k] = v
		}
		return await.Unless(c == fmt.Sprintf("%d %%NOPE%%\n", port), "%q", c)
	})
	token := env["ORRERY_TOKEN"]
	want := map[string]string{
		"MOTD":                 "lobby in north on lobby-1.example.org",
		"UNIVERSE_INSTANCE_ID": "aaaaaa", "UNIVERSE_MASTER_URL": "http://127.0.0.1:8080", "UNIVERSE_API_KEY": token,
		"CLOUD_INSTANCE_ID": "lobby-1", "CLOUD_GROUP": "lobby", "CLOUD_PORT": fmt.Sprint(port), "CLOUD_NODE_ID": "node-1",
		"CLOUD_PLUGIN_TOKEN": token, "CLOUD_CONTROLLER_URL": "http://127.0.0.1:8080", "CLOUD_CONTROLLER_HOST": "127.0.0.1",
		"CLOUD_CONTROLLER_PORT": "8080", "ORRERY_INSTANCE_ID": "aaaaaa", "ORRERY_INSTANCE_NAME": "lobby-1",
		"ORRERY_GROUP": "lobby", "ORRERY_NODE": "node-1", "ORRERY_PORT": fmt.Sprint(port), "ORRERY_API_URL": "http://127.0.0.1:8080",
		"LANG": "C.UTF-8", "TERM": "xterm-256color", "HOME": env["PWD"],
	}
	for k, v := range want {
		if env[k] != v {
			t.Errorf("%s=%q, want %q", k, env[k], v)
		}
	}
	for _, own := range []string{"PATH", "USER", "ORRERY_TOKEN", "ORRERY_AGENT", "PWD", "SHLVL", "_"} {
		delete(env, own)
	}
	if len(token) != 64 || len(env) != len(want) {
		t.Errorf("token of %d, environment %v", len(token), env)
	}
}

func TestReportHasRoomAndCachedTemplates(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	room := fleet.NodeRoom{Reserved: fleet.Resources{MemoryMiB: 512}, CPUFactor: 2, MaxInstances: 7}
	with := func(c *nodeagent.Config) { taking(c); c.Room = room }
	s.start(with)
	n, err := store.Get(t.Context(), s.store, keys.Node(node))
	if err != nil || n.Room != room {
		t.Errorf("%+v, %v", n.Room, err)
	}
	layer := s.library.add("base", map[string]string{"a": "1", "b": "2"})
	plan := basic("sleep 1000")
	plan.Layers = append(plan.Layers, layer)
	s.online("aaaaaa", plan)
	warm := func(after int64) func() string {
		return func() string {
			r, err := store.Get(t.Context(), s.store, keys.Report(node))
			return await.Unless(err == nil && r.ModRev > after && slices.Contains(r.Warm, layer.Digest), "%+v, %v", r, err)
		}
	}
	await.That(t, "the template in the report", warm(0))
	s.stop()
	s.start(with)
	session, err := store.Get(t.Context(), s.store, keys.NodeSession(node))
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the template in the report of the next agent", warm(session.CreateRev))
}

func TestReportIsRepeatedAtAnnouncedInterval(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var ahead atomic.Int64
	s.start(func(c *nodeagent.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	begun := time.Now()
	for n := range 4 {
		await.That(t, "a report that is no older than it may be", func() string {
			r, err := store.Get(t.Context(), s.store, keys.Report(node))
			return await.Unless(err == nil && r.EverySeconds == 30 && !r.At.Before(begun.Add(time.Duration(ahead.Load()))), "the report number %d: %+v, %v", n, r, err)
		})
		ahead.Add(int64(time.Hour))
	}
}

func TestWarmFillsCacheAndCacheListsIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(func(c *nodeagent.Config) { c.CacheMiB = 5 })
	layer := s.library.add("base", map[string]string{"a": "12345", "b": "2"})
	c := s.api()
	before, err := c.Cache(t.Context())
	if err != nil || before.LimitBytes != 5<<20 || len(before.Versions) != 0 {
		t.Fatalf("%+v, %v", before, err)
	}
	missing := strings.Repeat("0", 64)
	answer, err := c.Warm(t.Context(), []string{layer.Digest, missing})
	if err != nil || len(answer.Versions) != 2 {
		t.Fatalf("%+v, %v", answer, err)
	}
	if v := answer.Versions[0]; v != (client.WarmedVersion{Digest: layer.Digest, Status: client.WarmOK, Bytes: 6}) {
		t.Errorf("what is there: %+v", v)
	}
	if v := answer.Versions[1]; v.Digest != missing || v.Status != client.WarmFailed || v.Error == "" {
		t.Errorf("what nobody has: %+v", v)
	}
	after, err := c.Cache(t.Context())
	if err != nil || len(after.Versions) != 1 || after.TotalBytes <= 6 {
		t.Fatalf("%+v, %v", after, err)
	}
	if v := after.Versions[0]; v.Digest != layer.Digest || v.Bytes != 6 || !v.Complete || v.UsedAt.IsZero() || v.InUse {
		t.Errorf("%+v", v)
	}
	if _, err := c.Warm(t.Context(), make([]string, 257)); !errs.Is(err, errs.Invalid) {
		t.Errorf("too many at once: %v", err)
	}
}

func TestNextGenerationIsPrefetchedDuringStop(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic(`read line; until [ -e go ]; do sleep 0.02; done`)
	plan.Stop.Command = "stop"
	plan.Stop.GraceSeconds = 60
	st := s.online("aaaaaa", plan)
	next := basic("sleep 1000")
	next.Layers = []fleet.PlanLayer{s.library.add("next", map[string]string{"a": "12345"})}
	s.place("aaaaaa", st.Generation+1, next, 0)
	c := s.api()
	await.That(t, "the content", func() string {
		held, err := c.Cache(t.Context())
		return await.Unless(err == nil && len(held.Versions) == 1 && held.Versions[0].Complete, "%+v, %v", held, err)
	})
	if now := s.status("aaaaaa"); now.Generation != st.Generation || !now.State.Running() {
		t.Errorf("meanwhile it is %+v", now)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "running", "aaaaaa", "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.awaitState("aaaaaa", st.Generation+1, fleet.Online)
}

func TestCacheKeepsContentOfRunningInstancesAcrossAgents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	plan := basic("read line")
	plan.Stop.Command = "stop"
	plan.Layers = []fleet.PlanLayer{s.library.add("base", map[string]string{"a": "12345"})}
	inUse := func(want bool) func() string {
		return func() string {
			held, err := s.api().Cache(t.Context())
			ok := err == nil && len(held.Versions) == 1 && held.Versions[0].Complete && held.Versions[0].InUse == want
			return await.Unless(ok, "%+v, %v", held, err)
		}
	}
	s.online("aaaaaa", plan)
	await.That(t, "the use", inUse(true))
	s.stop()
	s.start(taking)
	await.That(t, "the use by the next agent", inUse(true))
	s.order("aaaaaa", 1, fleet.OrderStop)
	s.awaitState("aaaaaa", 1, fleet.Stopped)
	await.That(t, "its end", inUse(false))
}
