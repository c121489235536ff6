package fileedit

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/files"
)

// writerEnv holds the data directory of a process that writes until it is killed.
const writerEnv = "ORRERY_TEST_WRITER"

func TestMain(m *testing.M) {
	if data := os.Getenv(writerEnv); data != "" {
		fmt.Fprintln(os.Stderr, writeForever(data))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeForever replaces a file again and again, each time with one letter, and prints a line after each
// write.
func writeForever(data string) error {
	e, err := Open(Config{Dir: filepath.Join(data, "fileversions"), MaxBytes: 8 << 20, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	p := Place{Viewer: files.Viewer{Dir: filepath.Join(data, "static", "lobby", "lobby-1")}, Group: "lobby", Name: "lobby-1", Plan: fleet.Plan{Static: true}}
	for n := 0; ; n++ {
		text := strings.Repeat(string(rune('a'+n%26)), wholeBytes)
		if _, err := e.Write(context.Background(), p, client.FileWrite{Path: "world"}, strings.NewReader(text)); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

const wholeBytes = 1 << 20

func TestAKilledAgentLeavesTheOldOrTheNewContent(t *testing.T) {
	d := newDesk(t, map[string]string{"world": strings.Repeat("-", wholeBytes)})
	d.Close()
	for n := range 6 {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), writerEnv+"="+d.data)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range n + 1 {
			if !lines.Scan() {
				t.Fatal("the writer ended by itself")
			}
		}
		_ = child.Process.Kill() // in the middle of the next write
		_ = child.Wait()
		b, err := os.ReadFile(filepath.Join(d.place.Dir, "world"))
		if err != nil || len(b) != wholeBytes || strings.Trim(string(b), string(b[:1])) != "" {
			t.Errorf("%d bytes, %v: not one content", len(b), err)
		}
		d.now = d.now.Add(1)
		d.open(t) // the next agent
		d.unharmed(t)
		v, err := d.Versions(d.place, "world")
		if err != nil || len(v.Versions) == 0 {
			t.Errorf("%+v, %v", v, err)
		}
		if _, err := d.edit(client.FileEdit{Op: client.FileRestore, Version: v.Versions[0].ID}); err != nil {
			t.Error(err)
		}
		d.Close()
	}
	d.open(t)
}
