package compose

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
)

// baseImage is the Debian image that `make images` builds.
const baseImage = "orrery/base:12"

// Version is the version of the programs from FromSources. The copy has no history, and the
// Go image has no git.
const Version = "v0.0.0-clone"

// FromSources starts a stack from a copy of the files that git tracks, and returns what the
// service that creates the secrets has printed. BuildKit compiles the images from source.
// An image with this host's toolchain and downloaded modules replaces the registry's Go
// image, so that no build step needs a network.
func FromSources(t testing.TB) (s *Stack, printed string) {
	t.Helper()
	s = newStack(t, t.TempDir())
	clone(t, s.root)
	tag := strings.ToLower(rand.Text()[:8])
	goImage := makeGoImage(t, tag)
	without(t, s.root)
	s.env = append(s.env, "PATH="+buildKit(t)+string(os.PathListSeparator)+os.Getenv("PATH"), "COMPOSE_FILE=docker-compose.yml:build.yml", "DOCKER_BUILDKIT=1", "COMPOSE_DOCKER_CLI_BUILD=1",
		"ORRERY_TAG="+tag, "ORRERY_GO_IMAGE="+goImage, "ORRERY_BASE_IMAGE="+baseImage, "GOPROXY=file:///modules", "ORRERY_VERSION="+Version)
	t.Cleanup(func() {
		s.Stop()
		images, err := dockerAnyway("images", "--quiet", "--filter", "reference=orrery/*:"+tag)
		if err == nil && images != "" {
			_, err = dockerAnyway(append([]string{"rmi"}, strings.Fields(images)...)...)
		}
		if err != nil {
			t.Errorf("images of the test stay behind: %v", err)
		}
	})
	s.Compose("up", "-d")
	printed = s.Printed(secretsService)
	found := regexp.MustCompile(`first password of the user admin: (\S+)`).FindStringSubmatch(printed)
	if found == nil {
		t.Fatalf("no password is printed:\n%s", printed)
	}
	s.keepPassword(found[1])
	s.awaitReady()
	return s, printed
}

// Printed returns what a service has printed.
func (s *Stack) Printed(service string) string {
	s.t.Helper()
	out, err := s.compose("logs", "--no-color", service)
	if err != nil {
		s.t.Fatalf("docker-compose logs: %v\n%s", err, out)
	}
	return out
}

// buildKit returns a directory for PATH whose docker can build with BuildKit: version 20 by
// itself, later versions with the plugin buildx.
func buildKit(t testing.TB) string {
	t.Helper()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		cmd := exec.Command(filepath.Join(dir, "docker"), "build", "--help")
		cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=1")
		if out, err := cmd.CombinedOutput(); err == nil && strings.Contains(string(out), "--secret") {
			return dir
		}
	}
	t.Fatal("no docker on the PATH can build with BuildKit: install Debian's docker.io, or the plugin buildx")
	return ""
}

// clone copies the files that git tracks into a directory.
func clone(t testing.TB, into string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `git ls-files -z | tar --null -T - -c | tar -x -C "$0"`, into)
	cmd.Dir = cluster.Root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copying the sources: %v\n%s", err, out)
	}
}

// makeGoImage builds an image with this host's Go and its downloaded modules.
func makeGoImage(t testing.TB, tag string) string {
	t.Helper()
	image := "orrery/go:" + tag
	out, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	goroot, modules, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	container := must(t, "create", "--network", "none", baseImage)
	defer must(t, "rm", container)
	must(t, "cp", "--follow-link", goroot, container+":/usr/local/go")
	must(t, "cp", filepath.Join(modules, "cache", "download"), container+":/modules")
	must(t, "commit", "--change", "ENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container, image)
	return image
}

// without writes an override of the compose file that disables the network of every build.
func without(t testing.TB, root string) {
	t.Helper()
	text := "services:\n"
	for _, service := range []string{
		secretsService, "etcd-1", "etcd-2", "etcd-3", "gateway-1", "gateway-2", "scheduler", "enforcer", "templatesvc", "agent-1", "agent-2", "agent-3",
	} {
		text += fmt.Sprintf("  %s: {build: {network: none}}\n", service)
	}
	if err := os.WriteFile(filepath.Join(root, "build.yml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
