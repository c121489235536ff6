package process_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/confine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/contract"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

func TestMain(m *testing.M) { os.Exit(contract.Main(m, plain)) }

func plain(h contract.Host) (runtime.Runtime, error) {
	return process.New(process.Config{Tree: h.Tree, Limiter: h.Limiter, View: h.View, Owner: h.Owner, BootID: h.BootID})
}

func TestContract(t *testing.T) { contract.Run(t, plain) }

func TestLimits(t *testing.T) { contract.RunLimits(t, plain) }

func TestConfinement(t *testing.T) { contract.RunConfined(t, plain) }

// modes runs a test for both ways of finding an instance's processes: by control group, if the
// machine has them, and by session and environment.
func modes(t *testing.T, test func(t *testing.T, r *process.Runtime)) {
	t.Helper()
	owner := "test-" + strconv.Itoa(os.Getpid())
	run := func(name string, tree *cgroup.Tree) {
		t.Run(name, func(t *testing.T) {
			r, err := process.New(process.Config{Tree: tree, Owner: owner})
			if err != nil {
				t.Fatal(err)
			}
			test(t, r)
		})
	}
	run("by environment", nil)
	if tree := groups(t, owner); tree != nil {
		run("by control group", tree)
	}
}

func spec(t *testing.T, command string) runtime.Spec {
	t.Helper()
	dir := t.TempDir()
	id := fmt.Sprintf("t%d%d", os.Getpid(), time.Now().UnixNano())
	return runtime.Spec{
		InstanceID: id, Dir: dir, RunDir: filepath.Join(dir, "run"), LogPath: filepath.Join(dir, "log"),
		Command: command, Env: []string{"PATH=" + os.Getenv("PATH"), "ORRERY_INSTANCE_ID=" + id},
	}
}

func start(t *testing.T, r *process.Runtime, s runtime.Spec) runtime.Process {
	t.Helper()
	p, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
		defer cancel()
		if err := p.Kill(ctx); err != nil {
			t.Errorf("killing at the end: %v", err)
		}
	})
	return p
}

func exited(t *testing.T, p runtime.Process) runtime.Exit {
	t.Helper()
	select {
	case <-p.Exited():
		return p.Exit()
	case <-time.After(await.Patience):
		t.Fatalf("did not exit: %+v", p.Identity())
		return runtime.Exit{}
	}
}

func TestKilledWrapperHasASignal(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		p := start(t, r, spec(t, "sleep 1000"))
		if err := syscall.Kill(p.Identity().Shell.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if e := exited(t, p); e.Signal != "KILL" || !e.Known {
			t.Errorf("exit %+v", e)
		}
	})
}

func TestFullDiskKeepsExitCodeAndFailsStart(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		s := spec(t, "read line; exit 7")
		disk := t.TempDir()
		s.RunDir = filepath.Join(disk, "first")
		if err := unix.Mount("orrery-test", disk, "tmpfs", 0, "size=64k"); err != nil {
			t.Logf("no disk to fill here: %v", err)
			return
		}
		defer func() {
			if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}()
		p := start(t, r, s)
		if err := os.WriteFile(filepath.Join(disk, "ballast"), make([]byte, 64<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
		if err := p.WriteLine("go"); err != nil {
			t.Fatal(err)
		}
		if e := exited(t, p); !e.Known || e.Code != 7 {
			t.Errorf("exit %+v", e)
		}
		s.RunDir = filepath.Join(disk, "second")
		if p, err := r.Start(t.Context(), s); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("started %v, %v", p, err)
		}
	})
}

func BenchmarkStart(b *testing.B) {
	for name, limits := range map[string]runtime.Limits{
		"free": {}, "memory": {MemoryMiB: 256}, "limited": {MemoryMiB: 256, CPU: 100, CPUWeight: 100, Processes: 100},
	} {
		b.Run(name, func(b *testing.B) { benchmarkStart(b, limits, 0) })
	}
	b.Run("tenant", func(b *testing.B) { // only root gives runs users of their own
		benchmarkStart(b, runtime.Limits{MemoryMiB: 256, CPU: 100, CPUWeight: 100, Processes: 100}, 1_900_000_000)
	})
}

func benchmarkStart(b *testing.B, limits runtime.Limits, uid int) {
	owner := "bench-" + strconv.Itoa(os.Getpid())
	tree, _ := cgroup.Open(owner)
	defer tree.Close()
	limiter := cgroup.NewLimiter(owner, tree)
	defer limiter.Close()
	view, err := confine.Probe()
	if err != nil && uid != 0 {
		b.Fatal(err)
	}
	r, err := process.New(process.Config{Tree: tree, Limiter: limiter, View: view})
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	for i := 0; b.Loop(); i++ {
		id := "bench" + strconv.Itoa(i)
		s := runtime.Spec{
			InstanceID: id, Dir: dir, RunDir: filepath.Join(dir, id), LogPath: filepath.Join(dir, id+".log"),
			Command: "sleep 1000", Env: []string{"PATH=" + os.Getenv("PATH"), "ORRERY_INSTANCE_ID=" + id}, Limits: limits, UID: uid,
		}
		p, err := r.Start(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := p.Kill(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
