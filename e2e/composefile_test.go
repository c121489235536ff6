package e2e_test

import (
	"flag"
	"os"
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
