package suggest_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/suggest"
)

func TestNearest(t *testing.T) {
	known := []string{"defaultValue", "description", "memoryMb", "name", "nodes", "port", "ports"}
	for wrong, want := range map[string]string{
		"nmae": "name", "Nodes": "nodes", "memory_mb": "memoryMb", "prot": "port",
		"default": "defaultValue", "DESC": "description", "de": "", "": "", "cpus": "",
		strings.Repeat("name", 1<<18): "",
	} {
		if got := suggest.Nearest(wrong, known); got != want {
			t.Errorf("%.20q: %q, want %q", wrong, got, want)
		}
	}
}

func TestWithinRespectsDistance(t *testing.T) {
	known := []string{"instance", "config", "key"}
	for wrong, want := range map[string]string{"Instnace": "instance", "conf": "config", "con": "", "ke": "key", strings.Repeat("k", 65): ""} {
		if got := suggest.Within(wrong, known, 2); got != want {
			t.Errorf("%.20q: %q, want %q", wrong, got, want)
		}
	}
}
