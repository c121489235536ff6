package shell_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/root"
	"github.com/orreryhq/orrery/cli/internal/settings"
)

func TestCompletionIsInstalledWhereTheShellLooks(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for shell, file := range map[string]string{
		"bash": ".local/share/bash-completion/completions/orrery", "zsh": ".local/share/zsh/site-functions/_orrery",
		"fish": ".config/fish/completions/orrery.fish", "powershell": ".config/orrery/completion.ps1",
	} {
		var printed, out, errs bytes.Buffer
		a := &app.App{In: strings.NewReader(""), Out: &printed, Err: &errs, Env: func(string) string { return "" }, Settings: settings.New(filepath.Join(home, "config.yaml"), nil)}
		if code := root.Run(t.Context(), a, []string{"completion", shell}); code != 0 {
			t.Fatalf("%s: %d, %s", shell, code, errs.String())
		}
		a.Out = &out
		if code := root.Run(t.Context(), a, []string{"completion", shell, "--install"}); code != 0 {
			t.Fatalf("%s: %d, %s", shell, code, errs.String())
		}
		path := filepath.Join(home, filepath.FromSlash(file))
		content, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(content, printed.Bytes()) {
			t.Errorf("%s: the installed script differs from the printed one (%v)", shell, err)
		}
		if !strings.HasPrefix(out.String(), "completion written to "+path+"\n") {
			t.Errorf("%s: printed %q", shell, out.String())
		}
	}
	script := filepath.Join(home, ".local/share/bash-completion/completions/orrery")
	if output, err := exec.Command("bash", "-n", script).CombinedOutput(); err != nil {
		t.Errorf("bash does not accept the script: %v\n%s", err, output)
	}
}
