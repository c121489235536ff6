package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
)

func TestInterruptEndsAQuestion(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close() // ends the read
	interrupted := make(chan struct{})
	close(interrupted)
	var notes bytes.Buffer
	a := &App{In: in, Err: &notes, Interactive: true, Interrupted: interrupted}
	if err := a.Confirm("delete all?", "--yes"); !errors.Is(err, context.Canceled) {
		t.Errorf("the question ends with %v, want %v", err, context.Canceled)
	}
}
