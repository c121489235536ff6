package vm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Options configure a machine. The zero value has its own disk and no network.
type Options struct {
	// Name is the machine's name in messages. Empty means "guest".
	Name string
	// Network connects the machine to another one.
	Network *Port
	// Payload is the read-only disk at /payload.
	Payload *Payload
}

const (
	memoryMiB  = 2048
	processors = 2
	// diskID is the disk's name in the monitor.
	diskID = "root"
)

// Machine is a guest. Its disk survives a Cut and lasts until the test ends.
type Machine struct {
	t      testing.TB
	o      Options
	image  image
	dir    string
	cmd    *exec.Cmd
	ended  chan struct{}
	agent  *agent
	bootID string
}

// Start creates a machine and boots it.
func Start(t testing.TB, o Options) *Machine {
	t.Helper()
	o.Name = cmp.Or(o.Name, "guest")
	needs(t, "qemu-system-x86_64", "qemu-img")
	m := &Machine{t: t, o: o, image: guestImage(t), dir: directory(t)}
	disk := exec.CommandContext(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", m.image.disk, m.path("disk"))
	if out, err := disk.CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			m.showJournal()
		}
		if m.cmd != nil {
			m.Cut()
		}
		if t.Failed() {
			m.showConsole()
		}
	})
	m.Boot()
	return m
}

// directory returns a directory with a path short enough for sockets.
func directory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "vm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (m *Machine) path(name string) string { return filepath.Join(m.dir, name) }

// Boot starts the emulator and waits until the guest has booted.
func (m *Machine) Boot() {
	m.t.Helper()
	began := time.Now()
	m.cmd = exec.Command("qemu-system-x86_64", m.arguments()...)
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	m.cmd.Stdout, m.cmd.Stderr = &said, &said
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	cmd, ended := m.cmd, make(chan struct{})
	m.ended = ended
	go func() { _ = cmd.Wait(); close(ended) }()
	m.awaitBoot()
	m.t.Logf("%s booted in %v", m.o.Name, time.Since(began).Round(time.Second))
}

func (m *Machine) arguments() []string {
	args := []string{
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", strconv.Itoa(processors), "-m", strconv.Itoa(memoryMiB),
		"-nodefaults", "-no-user-config", "-display", "none",
		"-kernel", m.image.kernel, "-initrd", m.image.initrd,
		"-append", "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0 net.ifnames=0 panic=-1",
		"-serial", "file:" + m.path("console"),
		"-drive", "if=none,format=qcow2,id=" + diskID + ",file=" + m.path("disk"), "-device", "virtio-blk-pci,drive=" + diskID,
		"-device", "virtio-rng-pci",
		"-device", "virtio-serial", "-chardev", "socket,id=agent,server=on,wait=off,path=" + m.path("agent"),
		"-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
		"-qmp", "unix:" + m.path("qmp") + ",server=on,wait=off",
	}
	if m.o.Payload != nil {
		args = append(args, "-drive", "if=none,format=raw,readonly=on,id=payload,file="+m.o.Payload.disk, "-device", "virtio-blk-pci,drive=payload")
	}
	if m.o.Network != nil {
		args = append(args, m.o.Network.arguments()...)
	}
	return args
}

// awaitBoot waits until a new boot of the guest is complete.
func (m *Machine) awaitBoot() {
	m.t.Helper()
	if m.agent != nil {
		m.agent.close()
	}
	m.agent = &agent{socket: m.path("agent")}
	m.Await("a boot", func() string {
		select {
		case <-m.ended:
			m.t.Fatalf("the emulator of %s ended: %v", m.o.Name, m.cmd.ProcessState)
		default:
		}
		out, err := m.agent.run("cat /proc/sys/kernel/random/boot_id; systemctl is-system-running", time.Minute)
		id, state, _ := strings.Cut(out.stdout, "\n")
		switch {
		case err != nil:
			return err.Error()
		case id == m.bootID:
			return "the boot before"
		case strings.TrimSpace(state) != "running" && strings.TrimSpace(state) != "degraded":
			return strings.TrimSpace(state)
		}
		m.bootID = id
		return ""
	})
	if m.o.Payload != nil {
		m.Run("mount /payload")
	}
}

// Reboot restarts the guest and waits until it has booted. The guest agent may end before
// it answers.
func (m *Machine) Reboot() {
	m.t.Helper()
	_, _ = m.agent.run("systemctl --no-block reboot", answerBound)
	m.awaitBoot()
}

// Cut cuts the power. Data that the guest has not written to its disk is lost.
func (m *Machine) Cut() {
	m.t.Helper()
	_ = m.cmd.Process.Kill()
	<-m.ended
	m.cmd = nil
}

// Try runs a shell script as root and returns its output. The error contains the standard
// error and the exit status.
func (m *Machine) Try(script string) (string, error) {
	out, err := m.agent.run(script, patience)
	switch {
	case err != nil:
		return out.stdout, fmt.Errorf("%s: %q: %w", m.o.Name, script, err)
	case out.code != 0:
		return out.stdout, fmt.Errorf("%s: %q: exit status %d: %s%s", m.o.Name, script, out.code, out.stdout, out.stderr)
	}
	return out.stdout, nil
}

// Run runs a shell script as root and returns its output. It fails the test when the script
// fails.
func (m *Machine) Run(script string) string {
	m.t.Helper()
	out, err := m.Try(script)
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSuffix(out, "\n")
}

const (
	// patience limits each wait; an emulated machine on a busy host is slow.
	patience = 15 * time.Minute
	// every is the polling interval. Each poll costs the guest a process.
	every = 500 * time.Millisecond
)

// Await waits until check returns "". After patience, it fails the test with the last value
// of check.
func (m *Machine) Await(what string, check func() string) {
	m.t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(every) {
		last := check()
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("%s never showed %s; last: %s", m.o.Name, what, last)
		}
	}
}

// showJournal logs the end of the guest's journal if the guest answers. It omits the lines
// of QEMU's agent, which logs each request, and of the kernel, which are also on the
// console.
func (m *Machine) showJournal() {
	if m.cmd == nil || m.agent == nil {
		return
	}
	out, err := m.agent.run("journalctl --no-pager --output short-precise | grep -v -e qemu-ga -e ' kernel: ' | tail -n 300", answerBound)
	m.t.Logf("the journal of %s ends with (%v):\n%s", m.o.Name, err, out.stdout)
}

// showConsole logs the end of the guest's console.
func (m *Machine) showConsole() {
	b, err := os.ReadFile(m.path("console"))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	const last = 8 << 10
	m.t.Logf("the console of %s ends with:\n%s", m.o.Name, b[max(0, len(b)-last):])
}
