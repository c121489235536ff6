package e2e_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"go.yaml.in/yaml/v3"
)

// It needs no container engine: etcd's own flags read the environment that the file sets.
func TestTheComposeFileBoundsEtcdsHistoryAndDatabase(t *testing.T) {
	text, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Environment map[string]string `yaml:"environment"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	members := 0
	for name, service := range file.Services {
		if !strings.HasPrefix(name, "etcd-") {
			continue
		}
		members++
		cfg, flags := embed.NewConfig(), flag.NewFlagSet(name, flag.ContinueOnError)
		cfg.AddFlags(flags)
		flags.VisitAll(func(f *flag.Flag) {
			if value, ok := service.Environment["ETCD_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))]; ok {
				if err := f.Value.Set(value); err != nil {
					t.Errorf("%s: --%s=%s: %v", name, f.Name, value, err)
				}
			}
		})
		if cfg.AutoCompactionMode != embed.CompactorModePeriodic || cfg.AutoCompactionRetention != "10m" {
			t.Errorf("%s compacts by mode %q and keeps %q of history, want periodic and 10m", name, cfg.AutoCompactionMode, cfg.AutoCompactionRetention)
		}
		if cfg.QuotaBackendBytes != 4<<30 {
			t.Errorf("the quota of %s is %d bytes, want 4 GiB", name, cfg.QuotaBackendBytes)
		}
		if cfg.BootstrapDefragThresholdMegabytes != 256 {
			t.Errorf("%s defragments at its start to free %d MB, want 256", name, cfg.BootstrapDefragThresholdMegabytes)
		}
	}
	if members != 3 {
		t.Errorf("the file has %d members of etcd, want 3", members)
	}
}

func TestTheComposeFileNeedsNothingThatAFreshCloneLacks(t *testing.T) {
	text, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	if required := regexp.MustCompile(`\$\{[A-Z0-9_]+:\?[^}]*`).FindAllString(string(text), -1); required != nil {
		t.Errorf("variables have to be set: %q", required)
	}
	dockerfile, err := os.ReadFile("../deployments/docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Build       struct{ Dockerfile, Target string }
			Environment map[string]string
			Volumes     []string
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for name, service := range file.Services {
		if service.Build.Dockerfile != "deployments/docker/Dockerfile" || !strings.Contains(string(dockerfile), " AS "+service.Build.Target+"\n") {
			t.Errorf("%s is built of %+v, which is not there", name, service.Build)
		}
		_, secret := service.Environment["ORRERY_CLUSTER_SECRET_FILE"]
		if mounted := strings.Contains(strings.Join(service.Volumes, " "), "secrets:/run/orrery"); mounted != secret && name != "init" {
			t.Errorf("%s: its secret is a file: %v, and mounted: %v", name, secret, mounted)
		}
	}
}

func TestTheSecretsOfComposeAreMadeOnceOrTakenFromTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	run := func(env ...string) (printed, secret, password string) {
		t.Helper()
		c := exec.Command("bash", "../deployments/docker/init.sh")
		c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "ORRERY_SECRETS_DIR=" + dir}, env...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		read := func(name string) string {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		return string(out), read("cluster-secret"), read("admin-password")
	}
	printed, secret, password := run()
	if len(secret) != 64 || len(password) != 20 || strings.Count(printed, password) != 1 || strings.Contains(printed, secret) {
		t.Errorf("made %q and %q, printed:\n%s", secret, password, printed)
	}
	if printed, same, still := run(); same != secret || still != password || strings.Contains(printed, password) {
		t.Errorf("a second run leaves %q and %q, and prints:\n%s", same, still, printed)
	}
	printed, given, mine := run("ORRERY_CLUSTER_SECRET=given", "ORRERY_ADMIN_INITIAL_PASSWORD=mine")
	if given != "given" || mine != "mine" || strings.Contains(printed, "mine") {
		t.Errorf("given values become %q and %q, and it prints:\n%s", given, mine, printed)
	}
}
