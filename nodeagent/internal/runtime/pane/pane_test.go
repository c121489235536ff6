package pane

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "pane" {
		os.Exit(Main(os.Args[2:], os.Stderr))
	}
	os.Exit(m.Run())
}

// A JSON decoder reads 512 bytes, then up to 1536, then up to 3584. It leaves the rest unread if the
// object ends where a read ends.
func TestMessageOfAnyLengthIsRead(t *testing.T) {
	for _, length := range []int{511, 512, 513, 1535, 1536, 3583, 3584} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			program := Program{Dir: "/", Path: "/bin/true", Argv: []string{"true"}, Env: []string{"PADDING="}}
			empty, err := json.Marshal(message{Program: program})
			if err != nil {
				t.Fatal(err)
			}
			program.Env[0] += strings.Repeat("x", length-len(empty))
			listener, err := Listen(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			c := exec.Command(self, "pane", listener.Path())
			c.Stderr = os.Stderr
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			p, err := listener.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if err := p.Run(program); err != nil {
				t.Error(err)
			}
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
