package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Payload is the read-only disk that guests see as /payload: the repository's files that
// the documents use, and static programs in bin.
type Payload struct {
	disk string
}

// Contents describe a payload.
type Contents struct {
	// Programs are packages of commands to build into bin: "./standalone" becomes
	// bin/standalone.
	Programs []string
	// Next are packages to build into next/bin, with the next version.
	Next []string
	// Files are copied from the repository with their paths.
	Files []string
}

// The versions of the programs in bin and in next/bin.
const (
	Version     = "1.0.0-vm"
	NextVersion = "1.0.1-vm"
)

// NewPayload builds the programs and the disk.
func NewPayload(t testing.TB, c Contents) *Payload {
	t.Helper()
	needs(t, "mkfs.ext4", "qemu-system-x86_64")
	dir := directory(t)
	stage := filepath.Join(dir, "stage")
	build(t, filepath.Join(stage, "bin"), Version, c.Programs)
	build(t, filepath.Join(stage, "next", "bin"), NextVersion, c.Next)
	for _, name := range c.Files {
		to := filepath.Join(stage, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		run(t, repository(t), "cp", "-a", name, to)
	}
	p := &Payload{disk: filepath.Join(dir, "payload")}
	// The image is a sparse file, so a large size costs nothing.
	run(t, dir, "mkfs.ext4", "-q", "-L", "payload", "-O", "^has_journal", "-m", "0", "-d", stage, p.disk, "2G")
	if err := os.RemoveAll(stage); err != nil {
		t.Fatal(err)
	}
	return p
}

// build builds static commands of one version into a directory.
func build(t testing.TB, dir, version string, packages []string) {
	t.Helper()
	if len(packages) == 0 {
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"go", "build", "-trimpath", "-ldflags", "-s -w -X github.com/orreryhq/orrery/libs/telemetry.version=" + version, "-o", dir + "/"}, packages...)
	run(t, repository(t), args...)
}

// run runs a program on the host.
func run(t testing.TB, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// repository returns the top directory.
func repository(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Block returns the fenced block of a document that begins with a line, such as "useradd
// …", so that tests run what the document says.
func Block(t testing.TB, document, begins string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repository(t), document))
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split("\n"+string(b), "\n```") {
		if _, text, _ := strings.Cut(part, "\n"); i%2 == 1 && strings.HasPrefix(text, begins) {
			return text + "\n"
		}
	}
	t.Fatalf("%s has no block that begins with %q", document, begins)
	return ""
}
