package docker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/contract"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/docker"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/enginetest"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/pane"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "pane":
		os.Exit(pane.Main(os.Args[2:], os.Stderr))
	case len(os.Args) > 1 && os.Args[1] == "errand":
		os.Exit(runErrand())
	case len(os.Args) > 2 && os.Args[1] == "serve":
		os.Exit(serve(os.Args[2]))
	}
	os.Exit(contract.Main(m, newRuntime))
}

// serve greets every connection to a port.
func serve(port string) int {
	l, err := net.Listen("tcp", ":"+port)
	for err == nil {
		var c net.Conn
		if c, err = l.Accept(); err == nil {
			_, _ = c.Write([]byte("hello\n"))
			_ = c.Close()
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func newRuntime(h contract.Host) (runtime.Runtime, error) {
	r, err := made(h)
	if err == nil {
		err = r.Check(context.Background())
	}
	return inImage{r}, err
}

func made(h contract.Host) (*docker.Runtime, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return docker.New(docker.Config{
		Process: process.Config{Tree: h.Tree, Owner: h.Owner, BootID: h.BootID},
		Dir:     filepath.Join(h.Dir, "docker"), Pane: []string{exe, "pane"},
	})
}

// inImage runs specs without a container in the test's image.
type inImage struct{ *docker.Runtime }

func (r inImage) Start(ctx context.Context, s runtime.Spec) (runtime.Process, error) {
	if s.Container == nil {
		s.Container = &runtime.Container{Container: isolation.Container{Image: enginetest.Image, Network: "host", Volumes: enginetest.Volumes()}}
	}
	return r.Runtime.Start(ctx, s)
}

func TestContract(t *testing.T) {
	enginetest.Start(t)
	contract.Run(t, newRuntime)
}

// site is a data directory with a runtime.
type site struct {
	*testing.T
	inImage
	root string
	// network is the network of containers that spec describes.
	network string
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "r")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r, err := made(contract.Host{Dir: dir, Owner: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t, inImage{r}, dir, "host"}
	_ = r.Check(t.Context()) // there may be no engine yet
	return s
}

// spec describes a command in the test's image.
func (s *site) spec(id, command string) runtime.Spec {
	dir := s.TempDir()
	return runtime.Spec{
		InstanceID: id, Dir: dir, RunDir: filepath.Join(dir, "run"), LogPath: filepath.Join(dir, "log"), Command: command,
		Env:       []string{"ORRERY_INSTANCE_ID=" + id, "TOKEN=sesame"},
		Container: &runtime.Container{Container: isolation.Container{Image: enginetest.Image, Network: s.network, Volumes: enginetest.Volumes()}},
	}
}

func (s *site) start(spec runtime.Spec) runtime.Process {
	s.Helper()
	p, err := s.Start(s.Context(), spec)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = p.Kill(context.Background()) })
	return p
}

func (s *site) run(spec runtime.Spec) runtime.Exit {
	s.Helper()
	p := s.start(spec)
	<-p.Exited()
	return p.Exit()
}

func (s *site) says(path, want string) {
	s.Helper()
	await.That(s.T, path, func() string {
		b, _ := os.ReadFile(path)
		return await.Unless(string(b) == want, "%q, want %q", b, want)
	})
}

func TestMissingEngineIsExplained(t *testing.T) {
	for name, c := range map[string]struct{ host, want string }{
		"no listener":     {"unix://" + t.TempDir() + "/none", "no container engine answers"},
		"another host":    {"tcp://127.0.0.1:1", "only one on this host"},
		"invalid address": {"nonsense", "check DOCKER_HOST"},
		"not an engine":   {"unix://" + deaf(t), "does not answer like a container engine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DOCKER_HOST", c.host)
			r, err := docker.New(docker.Config{Pane: []string{"pane"}, Dir: t.TempDir()})
			if err == nil {
				err = r.Check(t.Context())
			}
			if !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// deaf returns a socket that closes every connection.
func deaf(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return path
}

func TestContainers(t *testing.T) {
	e := enginetest.Start(t)
	if _, err := e.Docker("network", "create", "private"); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*site, *enginetest.Engine){
		"a missing image is named":                         imageMissing,
		"a missing network is named":                       networkMissing,
		"running out of memory is recognised":              outOfMemory,
		"limits are set on the container":                  limits,
		"the number of processes is limited":               processes,
		"the user inside owns the directory":               userOwns,
		"the user inside cannot write to read-only files":  readOnly,
		"volumes are mounted as declared":                  volumes,
		"ports are published under the same number":        ports,
		"the instance's environment overrides the image's": environment,
		"a paused container is killed":                     paused,
		"a container with a similar name is not touched":   strangers,
		"nothing remains after the end":                    nothingLeft,
		"root has the capabilities of an entrypoint":       entrypoint,
		"a user has no capability":                         unprivileged,
		"setuid files and device nodes give no rights":     nothingGained,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.network = "private" // as most containers have
			test(s, e)
		})
	}
}

func imageMissing(s *site, _ *enginetest.Engine) {
	spec := s.spec("missing", "true")
	spec.Container.Image = "127.0.0.1:1/no/such-image:9"
	_, err := s.Start(s.Context(), spec)
	if !errs.Is(err, errs.NotFound) || !strings.Contains(errs.MessageOf(err), "no/such-image:9 was removed since the instance was prepared") {
		s.Errorf("a start pulls the image: %v", err)
	}
	err = s.Prepare(s.Context(), spec.Container.Image)
	if !errs.Is(err, errs.Unavailable) || errors.Is(err, runtime.ErrUnreachable) || !strings.Contains(errs.MessageOf(err), "no/such-image:9") {
		s.Errorf("an unreachable registry: %v", err)
	}
	for status, kind := range map[int]errs.Kind{http.StatusNotFound: errs.NotFound, http.StatusServiceUnavailable: errs.Unavailable} {
		image := enginetest.Registry(s, status) + "/no/such-image:9"
		if err := s.Prepare(s.Context(), image); !errs.Is(err, kind) || !strings.Contains(errs.MessageOf(err), image) {
			s.Errorf("a registry that answers %d: %v, want %v", status, err, kind)
		}
	}
	if err := s.Prepare(s.Context(), "not a name"); !errs.Is(err, errs.NotFound) {
		s.Errorf("%v", err)
	}
}

func networkMissing(s *site, e *enginetest.Engine) {
	spec := s.spec("offline", "true")
	spec.Container.Network = "no-such-net"
	_, err := s.Start(s.Context(), spec)
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), "no-such-net") {
		s.Errorf("%v", err)
	}
	if left, err := e.Docker("ps", "--all", "--quiet", "--filter", "name=orrery-offline"); left != "" || err != nil {
		s.Errorf("left behind: %s %v", left, err)
	}
}

func outOfMemory(s *site, _ *enginetest.Engine) {
	spec := s.spec("greedy", "exec tail /dev/zero")
	spec.Limits.MemoryMiB = 32
	e := s.run(spec)
	for attempt := 1; attempt < 3 && !e.OOM; attempt++ { // an engine under load misses the kernel's notice now and then
		e = s.run(spec)
	}
	if !e.OOM || e.LimitMiB != 32 || e.Code != 137 || e.Signal != "KILL" {
		s.Errorf("exit %+v", e)
	}
	if e := s.run(s.spec("killed", "kill -KILL $$")); e.OOM || e.Code != 137 {
		s.Errorf("exit %+v", e)
	}
}

func limits(s *site, _ *enginetest.Engine) {
	spec := s.spec("bounded", `cd /sys/fs/cgroup
if [ -e cpu.max ]; then cat cpu.max pids.max memory.max; else cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us pids/pids.max memory/memory.limit_in_bytes; fi | xargs >/data/got`)
	spec.Limits = runtime.Limits{MemoryMiB: 64, CPU: 50, CPUWeight: 100, Processes: 77}
	s.run(spec)
	s.says(filepath.Join(spec.Dir, "got"), "50000 100000 78 67108864\n") // the init counts as a process
	more := s.spec("spoilt", "true")
	more.Limits.CPU = 100 * (goruntime.NumCPU() + 1)
	if e := s.run(more); e.Code != 0 {
		s.Errorf("a limit above the host's capacity: exit %+v", e)
	}
}

func processes(s *site, _ *enginetest.Engine) {
	spec := s.spec("crowded", "exec sh -c 'i=0; while [ $i -lt 64 ]; do i=$((i+1)); sleep 1000 & done; echo all'")
	spec.Limits.Processes = 16
	s.run(spec)
	if log, _ := os.ReadFile(spec.LogPath); strings.Contains(string(log), "all") {
		s.Errorf("more processes than allowed: %q", log)
	}
}

func userOwns(s *site, _ *enginetest.Engine) {
	for _, user := range []string{enginetest.User, fmt.Sprintf("%d:%d", enginetest.UserID, enginetest.UserID)} {
		spec := s.spec("owned", "mkdir made && id -u >made/got && echo more >>template && echo up")
		spec.Container.User = user
		template := filepath.Join(spec.Dir, "template")
		if err := os.WriteFile(template, []byte("first\n"), 0o600); err != nil {
			s.Fatal(err)
		}
		if e := s.run(spec); e.Code != 0 {
			log, _ := os.ReadFile(spec.LogPath)
			s.Fatalf("exit %+v: %s", e, log)
		}
		s.says(filepath.Join(spec.Dir, "made/got"), fmt.Sprintln(enginetest.UserID))
		s.says(template, "first\nmore\n")
		s.says(spec.LogPath, "up\n")
	}
}

func readOnly(s *site, _ *enginetest.Engine) {
	spec := s.spec("sealed", `echo more >file; chmod u+w file; rm -f file; echo more >>dir/inner; cat file; touch own dir/own && echo made`)
	spec.Container.User, spec.Confine.ReadOnlyTemplates = enginetest.User, true
	if err := os.Mkdir(filepath.Join(spec.Dir, "dir"), 0o755); err != nil {
		s.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{"file": 0o444, "dir/inner": 0o400, claim.FileName: 0o600} {
		if err := os.WriteFile(filepath.Join(spec.Dir, path), []byte("first\n"), mode); err != nil {
			s.Fatal(err)
		}
	}
	s.run(spec)
	if log, _ := os.ReadFile(spec.LogPath); !strings.HasSuffix(string(log), "first\nmade\n") {
		s.Errorf("%s", log)
	}
	for _, path := range []string{"file", "dir/inner"} {
		s.says(filepath.Join(spec.Dir, path), "first\n")
	}
	if info, err := os.Stat(filepath.Join(spec.Dir, claim.FileName)); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		s.Errorf("the server could change the lock file: %v", err)
	}
}

func volumes(s *site, _ *enginetest.Engine) {
	spec, extra := s.spec("mounted", "cat /extra/file; touch /extra/new || touch /writable/new; pwd"), s.TempDir()
	if err := os.WriteFile(filepath.Join(extra, "file"), []byte("shared\n"), 0o600); err != nil {
		s.Fatal(err)
	}
	writable := s.TempDir()
	spec.Container.Directory = "/srv/server"
	spec.Container.Volumes = append(spec.Container.Volumes, extra+":/extra:ro", writable+":/writable")
	s.run(spec)
	if _, err := os.Stat(filepath.Join(writable, "new")); err != nil {
		s.Error(err)
	}
	if _, err := os.Stat(filepath.Join(extra, "new")); err == nil {
		s.Error("a volume that is read-only was written to")
	}
	log, _ := os.ReadFile(spec.LogPath)
	if text := string(log); !strings.HasPrefix(text, "shared\n") || !strings.HasSuffix(text, "/srv/server\n") {
		s.Errorf("%q", text)
	}
}

// freePort returns a port that is currently free.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func ports(s *site, _ *enginetest.Engine) {
	port := freePort(s.T)
	spec := s.spec("listening", fmt.Sprintf("exec /.orrery/pane serve %d", port))
	spec.Container.Address = "127.0.0.1"
	spec.Container.Ports = []runtime.Port{{Number: port, Protocol: "tcp"}, {Number: port, Protocol: "udp"}}
	p := s.start(spec)
	await.That(s.T, "an answer on the port", func() string {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		b := make([]byte, 6)
		_, err = c.Read(b)
		return await.Unless(string(b) == "hello\n", "%q, %v", b, err)
	})
	if err := p.Kill(s.Context()); err != nil {
		s.Fatal(err)
	}
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
		_ = c.Close()
		s.Error("the port is still used after the container's end")
	}
}

func environment(s *site, e *enginetest.Engine) {
	spec := s.spec("dressed", "env | sort; read line")
	spec.Env = append(spec.Env, "HOME=/data")
	spec.Container.Image = enginetest.Dressed
	p := s.start(spec)
	await.That(s.T, "the environment", func() string {
		b, _ := os.ReadFile(spec.LogPath)
		for _, want := range []string{enginetest.ImageVariable, "TOKEN=sesame", "HOME=/data", "PATH=/"} {
			if !strings.Contains(string(b), want) {
				return fmt.Sprintf("%q without %s", b, want)
			}
		}
		return ""
	})
	shown, err := e.Docker("inspect", "orrery-dressed")
	if err != nil || strings.Contains(shown, "sesame") {
		s.Errorf("%v: who looks at the container sees its token: %s", err, shown)
	}
	if err := p.WriteLine("end"); err != nil {
		s.Error(err)
	}
	<-p.Exited()
}

func paused(s *site, e *enginetest.Engine) {
	p := s.start(s.spec("frozen", "sleep 1000"))
	if _, err := e.Docker("pause", "orrery-frozen"); err != nil {
		s.Fatal(err)
	}
	if err := p.Kill(s.Context()); err != nil || p.Running() {
		s.Error(err)
	}
}

func strangers(s *site, e *enginetest.Engine) {
	if _, err := e.Docker("create", "--name", "orrery-lobby2", "--label", "orrery.instance=lobby", enginetest.Image, "true"); err != nil {
		s.Fatal(err)
	}
	for range 2 {
		s.run(s.spec("lobby", "true"))
	}
	if _, err := e.Docker("inspect", "orrery-lobby2"); err != nil {
		s.Error(err)
	}
	if _, err := e.Docker("rename", "orrery-lobby2", "orrery-lobby"); err != nil {
		s.Fatal(err)
	}
	if _, err := s.Start(s.Context(), s.spec("lobby", "true")); !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), "orrery-lobby") {
		s.Errorf("a name used by another container: %v", err)
	}
	if _, err := e.Docker("inspect", "orrery-lobby"); err != nil {
		s.Error(err)
	}
}

func nothingLeft(s *site, e *enginetest.Engine) {
	p := s.start(s.spec("brief", "setsid sleep 1000 & exit 3"))
	if <-p.Exited(); p.Exit().Code != 3 || proctest.Lives(p.Identity().Server.PID) {
		s.Errorf("exit %+v", p.Exit())
	}
	if left, err := e.Docker("ps", "--all", "--quiet", "--filter", "name=orrery-brief"); left != "" || err != nil {
		s.Errorf("left behind: %s %v", left, err)
	}
}

// rights is a command that prints the privileges of its process.
const rights = `grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status | xargs`

// asUser runs a command as the image's user, as an entrypoint does that starts as root.
var asUser = fmt.Sprintf("setpriv --reuid %d --regid %d --clear-groups ", enginetest.UserID, enginetest.UserID)

func entrypoint(s *site, _ *enginetest.Engine) {
	spec := s.spec("entry", rights+fmt.Sprintf(" >got; mkdir made && chown -R %d . && ", enginetest.UserID)+asUser+"sh -c 'id -u >made/who'")
	if e := s.run(spec); e.Code != 0 {
		log, _ := os.ReadFile(spec.LogPath)
		s.Fatalf("exit %+v: %s", e, log)
	}
	// CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, KILL 5, SETGID 6, SETUID 7.
	s.says(filepath.Join(spec.Dir, "got"), "CapEff: 00000000000000eb CapBnd: 00000000000000eb NoNewPrivs: 1\n")
	s.says(filepath.Join(spec.Dir, "made/who"), fmt.Sprintln(enginetest.UserID))
}

func unprivileged(s *site, e *enginetest.Engine) {
	spec := s.spec("meek", rights+" >got")
	spec.Container.User = enginetest.User
	s.run(spec)
	s.says(filepath.Join(spec.Dir, "got"), "CapEff: 0000000000000000 CapBnd: 0000000000000000 NoNewPrivs: 1\n")
	shy := s.spec("shy", rights+" >got")
	shy.Container.Image = enginetest.Shy
	s.run(shy)
	s.says(filepath.Join(shy.Dir, "got"), "CapEff: 0000000000000000 CapBnd: 0000000000000000 NoNewPrivs: 1\n")
}

func nothingGained(s *site, _ *enginetest.Engine) {
	spec := s.spec("sly", "cp /usr/bin/id gain && chown 0:0 gain && chmod 6755 gain && "+asUser+"./gain -u >got; "+
		"mknod disk b 7 0 2>>log || echo none made >>got; head -c 1 there >>got 2>>log || echo none read >>got")
	if err := unix.Mknod(filepath.Join(spec.Dir, "there"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))); err != nil {
		s.Fatal(err)
	}
	s.run(spec)
	s.says(filepath.Join(spec.Dir, "got"), fmt.Sprintln(enginetest.UserID)+"none made\nnone read\n")
}

func TestContainersSurviveTheEngine(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			e := enginetest.Start(t)
			s := newSite(t)
			ending := s.spec("ending", "read line; echo last words; exit 7")
			staying := s.spec("staying", "while read line; do echo $line; done")
			first, second := s.start(ending), s.start(staying)
			if err := e.End(sig); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(first.WriteLine("end"), second.WriteLine("still here")); err != nil {
				t.Fatal(err)
			}
			s.says(ending.LogPath, "last words\n")
			s.says(staying.LogPath, "still here\n")
			adopted, err := s.Adopt(t.Context(), staying, second.Identity())
			if err != nil || !adopted.Running() {
				t.Fatalf("without an engine: %v", err)
			}
			if err := e.Run(); err != nil {
				t.Fatal(err)
			}
			if <-first.Exited(); first.Exit().Code != 7 || !first.Exit().Known {
				t.Errorf("exit %+v", first.Exit())
			}
			if err := adopted.WriteLine("and after"); err != nil {
				t.Error(err)
			}
			s.says(staying.LogPath, "still here\nand after\n")
			if err := adopted.Kill(t.Context()); err != nil {
				t.Error(err)
			}
			if <-second.Exited(); second.Exit().Code != 137 {
				t.Errorf("exit %+v", second.Exit())
			}
		})
	}
}

func TestKillWorksWithoutTheEngine(t *testing.T) {
	e := enginetest.Start(t)
	s := newSite(t)
	p := s.start(s.spec("alone", "trap '' TERM; sleep 1000"))
	if err := e.End(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if x := p.Exit(); proctest.Lives(p.Identity().Server.PID) || !x.Known || x.Code != 137 {
		t.Errorf("exit %+v", x)
	}
	if err := e.Run(); err != nil {
		t.Fatal(err)
	}
	if e := s.run(s.spec("alone", "exit 5")); e.Code != 5 {
		t.Errorf("the next run: exit %+v", e)
	}
}
