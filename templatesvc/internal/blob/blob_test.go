package blob_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/templatesvc/internal/blob"
)

func TestAReplicaThatStartsLeavesTheWritesOfAnotherAlone(t *testing.T) {
	dir := t.TempDir()
	first, err := blob.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	body, upload := io.Pipe()
	stored := make(chan error, 1)
	go func() {
		_, _, err := first.Put(body, 1<<20)
		stored <- err
	}()
	if _, err := upload.Write([]byte("half ")); err != nil { // the first replica is in the middle of it
		t.Fatal(err)
	}
	if _, err := blob.Open(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := upload.Write([]byte("and half")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(upload.Close(), <-stored); err != nil {
		t.Errorf("the write of the first replica failed: %v", err)
	}
}

func TestInterruptedWritesAreClearedWhenTheyAreOld(t *testing.T) {
	dir := t.TempDir()
	store, err := blob.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "incoming", "blob-1")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	sum, _, err := store.Put(strings.NewReader("whole"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	again, err := blob.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what an interrupted write left is still there: %v", err)
	}
	if b, err := again.ReadAll(sum); err != nil || string(b) != "whole" {
		t.Errorf("the whole blob reads %q, %v", b, err)
	}
}
