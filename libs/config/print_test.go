package config_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/config"
)

func TestPrintConfigWorksWithInvalidSettings(t *testing.T) {
	var s struct {
		Retries int    `config:"retries" default:"3" usage:"tries"`
		Name    string `config:"name" usage:"a name"`
	}
	var out, complaint bytes.Buffer
	code := config.Main(config.Options{Name: "tester", Args: []string{"--print-config", "--retries", "many", "--name", "x"}, Into: &s, Stdout: &out},
		&complaint, func() error { return nil })
	if code != config.ExitUsage || !strings.Contains(out.String(), "name: x") || !strings.Contains(complaint.String(), "retries") {
		t.Errorf("exit code %d, printed %q, complained %q", code, &out, &complaint)
	}
}
