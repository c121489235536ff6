package program_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/orreryhq/orrery/libs/config"
	"github.com/orreryhq/orrery/libs/program"
)

func TestTheSealingKeyIsDecryptedWithTheSettings(t *testing.T) {
	t.Parallel()
	const key = "0123456789abcdef0123456789abcdef"
	mine, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	var file strings.Builder
	a := armor.NewWriter(&file)
	w, err := age.Encrypt(a, mine.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(key)) // a strings.Builder never fails
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"key.age": file.String(), "identity": mine.String() + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func(args ...string) (s struct {
		Seal program.Seal `config:"seal"`
	}, err error,
	) {
		_, err = config.Load(config.Options{Into: &s, Args: append([]string{"--seal-key-file", filepath.Join(dir, "key.age")}, args...)})
		return s, err
	}
	s, err := load("--seal-identity-file", filepath.Join(dir, "identity"))
	if err != nil || s.Seal.Key != key || s.Seal.Identity != "" {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = load()
	if problems := config.Problems(err); len(problems) != 1 || !strings.HasPrefix(problems[0], "seal.identity is missing") {
		t.Errorf("without the identity: %q", problems)
	}
}
