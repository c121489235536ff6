package config_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/config"
	"github.com/orreryhq/orrery/libs/errs"
)

func TestPrintConfigCanBeReadBack(t *testing.T) {
	var out bytes.Buffer
	_, done, err := load(t, config.Options{
		Stdout: &out, Env: []string{"ORRERY_ETCD_PASSWORD=s3cret", "ORRERY_NODE=1.10"},
		Args: []string{"--print-config", "--labels", "A.b=C", "--etcd-endpoints=a:1,b:2"},
	})
	if err != nil || !done {
		t.Fatalf("done %v, err %v", done, err)
	}
	want := `log:
  level: info # default
node: "1.10" # env ORRERY_NODE
etcd:
  endpoints: ['a:1', 'b:2'] # flag --etcd-endpoints
  dial-timeout: 5s # default
  password: '***' # env ORRERY_ETCD_PASSWORD
shards: 64 # default
quota: 0 # default
weight: 0.5 # default
strict: false # default
labels: # flag --labels
  A.b: C
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	back, _, err := load(t, config.Options{Args: []string{"--config", write(t, "c.yaml", out.String())}})
	if err != nil || back.Node != "1.10" || back.Labels["A.b"] != "C" {
		t.Errorf("read back: %+v, %v", back, err)
	}
}

func TestHelpAndVersionStopBeforeAnythingIsRead(t *testing.T) {
	for flag, want := range map[string][]string{
		"--help":    {"Usage: orrery-test [flags]", "--etcd-dial-timeout duration", "(env ORRERY_ETCD_DIAL_TIMEOUT) (default 5s)", "--etcd-password-file file", "--print-config"},
		"-h":        {"Usage: orrery-test [flags]"},
		"--version": {"orrery-test v1.2.3\n"},
	} {
		var out bytes.Buffer
		_, done, err := load(t, config.Options{Stdout: &out, Version: "v1.2.3", Args: []string{flag}, Env: []string{"ORRERY_CONFIG=/nope.yaml"}})
		if err != nil || !done {
			t.Errorf("%s: done %v, err %v", flag, done, err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: %q is missing in\n%s", flag, w, out.String())
			}
		}
	}
}

func TestMainTurnsOutcomesIntoExitCodes(t *testing.T) {
	cases := []struct {
		name   string
		args   []string
		run    error
		code   int
		stderr string
	}{
		{"a clean run", nil, nil, 0, ""},
		{"version", []string{"--version"}, errors.New("ran"), 0, ""},
		{"a wrong setting", []string{"--shards=x"}, nil, 2, "orrery-test: the configuration is not usable:\n  shards must be a whole number, not \"x\" (flag --shards)\nSee orrery-test --help.\n"},
		{"a failure", nil, errors.New("boom"), 1, "orrery-test: boom\n"},
		{"what the operator must correct", nil, errs.New(errs.Invalid, "port 8080 is taken"), 2, "orrery-test: port 8080 is taken\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var stderr bytes.Buffer
			code := config.Main(config.Options{Name: "orrery-test", Args: c.args, Into: &settings{}}, &stderr,
				func() error { return c.run })
			if code != c.code || stderr.String() != c.stderr {
				t.Errorf("got %d %q, want %d %q", code, stderr.String(), c.code, c.stderr)
			}
		})
	}
}
