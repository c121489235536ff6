package spelling_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/spelling"
)

func TestWhatWasMeantIsFound(t *testing.T) {
	known := []string{"defaultValue", "description", "memoryMb", "name", "nodes", "port", "ports"}
	for wrong, want := range map[string]string{
		"nmae": "name", "Nodes": "nodes", "memory_mb": "memoryMb", "prot": "port",
		"default": "defaultValue", "DESC": "description", "de": "", "": "", "cpus": "",
		strings.Repeat("name", 1<<18): "",
	} {
		if got := spelling.Nearest(wrong, known); got != want {
			t.Errorf("%.20q: %q, want %q", wrong, got, want)
		}
	}
}

func TestWithinIsNotFurther(t *testing.T) {
	known := []string{"instance", "config", "key"}
	for wrong, want := range map[string]string{"Instnace": "instance", "conf": "config", "con": "", "ke": "key", strings.Repeat("k", 65): ""} {
		if got := spelling.Within(wrong, known, 2); got != want {
			t.Errorf("%.20q: %q, want %q", wrong, got, want)
		}
	}
}
