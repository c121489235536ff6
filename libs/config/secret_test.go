package config_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/config"
)

func TestASecretComesFromItsFile(t *testing.T) {
	path := write(t, "pw", " s3cret \n")
	for _, o := range []config.Options{
		{Env: []string{"ORRERY_ETCD_PASSWORD_FILE=" + path}},
		{Args: []string{"--etcd-password-file", path}},
		{Env: []string{"ORRERY_ETCD_PASSWORD= s3cret "}},
	} {
		got, _, err := load(t, o)
		if err != nil {
			t.Fatal(err)
		}
		if got.Etcd.Password != " s3cret " {
			t.Errorf("got %q", got.Etcd.Password)
		}
		var printed bytes.Buffer
		o.Args, o.Stdout = append(o.Args, "--print-config"), &printed
		if _, _, err := load(t, o); err != nil || strings.Contains(printed.String(), "s3cret") || !strings.Contains(printed.String(), "'***'") {
			t.Errorf("printed with %v:\n%s", err, &printed)
		}
	}
	if _, _, err := load(t, config.Options{Env: []string{"ORRERY_ETCD_PASSWORD_FILE=/nope"}}); err == nil ||
		!strings.Contains(err.Error(), "etcd.password cannot be read: open /nope") {
		t.Errorf("got %v", err)
	}
}

func TestSecretsAreNotInErrors(t *testing.T) {
	path := write(t, "c.yaml", "etcd: {password: 123456}")
	_, _, err := load(t, config.Options{Args: []string{"--config", path}})
	if err == nil || strings.Contains(err.Error(), "123456") {
		t.Errorf("got %v", err)
	}
}
