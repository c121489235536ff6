package backup

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// workerEnv holds the data directory of a process that backs up and restores until it is killed.
const workerEnv = "ORRERY_TEST_WORKER"

func TestMain(m *testing.M) {
	if data := os.Getenv(workerEnv); data != "" {
		fmt.Fprintln(os.Stderr, workForever(data))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// worldFiles is the number of files of a world. Each has the same letter.
const worldFiles, worldBytes = 20, 200_000

// fill writes a world of one letter.
func fill(dir, letter string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	for n := range worldFiles {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("region-", n)), []byte(strings.Repeat(letter, worldBytes)), 0o640); err != nil {
			return err
		}
	}
	return nil
}

// workForever backs the world up, writes another one, restores the first, and prints a line after each.
func workForever(data string) error {
	s := &site{t: new(testing.T), data: data, on: &server{}}
	s.dir = filepath.Join(data, "static", "survival", "survival-1")
	s.place = Place{Instance: "aaaaaa", Generation: 3, Group: "survival", Name: "survival-1", Console: s.on, Allowed: func() error { return nil }}
	s.open()
	for n := 0; ; n++ {
		b, err := s.Create(s.place, client.NewBackup{Keep: 3})
		if err == nil {
			b, err = s.Get(context.Background(), s.place, b.ID)
		}
		if err != nil || b.State != client.BackupComplete {
			return fmt.Errorf("%+v: %w", b, err)
		}
		fmt.Println("backup")
		if b, err = s.Restore(s.place, s.backups()[n%min(n+1, 3)].ID, false); err == nil {
			b, err = s.Get(context.Background(), s.place, b.ID)
		}
		if err != nil || b.Message != "" {
			return fmt.Errorf("%+v: %w", b, err)
		}
		fmt.Println("restore")
	}
}

// world returns the letter of a directory; "" if it does not have one complete world.
func world(dir string) string {
	letter := ""
	for n := range worldFiles {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("region-", n)))
		if err != nil || len(b) != worldBytes || letter != "" && letter != string(b[:1]) || strings.Trim(string(b), string(b[:1])) != "" {
			return ""
		}
		letter = string(b[:1])
	}
	return letter
}

func TestAKilledAgentLeavesACompleteWorld(t *testing.T) {
	s := newSite(t)
	if err := fill(s.dir, "a"); err != nil {
		t.Fatal(err)
	}
	if b := s.create(client.NewBackup{}); b.State != client.BackupComplete {
		t.Fatalf("%+v", b)
	}
	if err := fill(s.dir, "b"); err != nil {
		t.Fatal(err)
	}
	for n := range 12 {
		s.stop()
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), workerEnv+"="+s.data)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range n%2 + 1 {
			if !lines.Scan() {
				t.Fatal("the worker ended by itself")
			}
		}
		began := time.Now()
		if !lines.Scan() {
			t.Fatal("the worker ended by itself")
		}
		<-time.After(rand.N(2 * time.Since(began))) // at any step of the next two
		_ = child.Process.Kill()
		_ = child.Wait()
		if world(s.dir) == "" {
			t.Fatal("the directory is not one of the worlds")
		}
		s.open() // the next agent
		if world(s.dir) == "" {
			t.Fatal("the next agent damaged the directory")
		}
		if left, _ := os.ReadDir(s.restoring()); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		all := s.backups()
		await.That(t, "a record for each archive and nothing else", func() string {
			files, _ := os.ReadDir(filepath.Join(s.data, "backups", "survival", "survival-1"))
			return await.Unless(len(all) > 0 && len(files) == 2*len(all), "%d files of %d backups", len(files), len(all))
		})
		for _, b := range all { // each is whole
			if b = s.await(s.Restore(s.place, b.ID, false)); b.Message != "" || world(s.dir) == "" {
				t.Errorf("%+v", b)
			}
		}
	}
}
