package app

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/output"
	"golang.org/x/term"
)

// Confirm asks a question and returns nil if the answer is yes. flag is what answers it without a
// terminal, for example --yes.
func (a *App) Confirm(question, flag string) error {
	if err := a.mayAsk(question, flag); err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "%s [y/N] ", output.Clean(question))
	answer, err := a.readLine()
	if err != nil {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return exit.With(exit.Failed, errors.New("not confirmed; nothing was changed"), "")
}

// Ask asks for a text. An empty answer is fallback.
func (a *App) Ask(question, fallback, flag string) (string, error) {
	if err := a.mayAsk(question, flag); err != nil {
		return "", err
	}
	if fallback != "" {
		question += " [" + fallback + "]"
	}
	fmt.Fprintf(a.Err, "%s: ", output.Clean(question))
	answer, err := a.readLine()
	return cmp.Or(strings.TrimSpace(answer), fallback), err
}

// AskSecret asks for a text that is not shown.
func (a *App) AskSecret(question, flag string) (string, error) {
	if err := a.mayAsk(question, flag); err != nil {
		return "", err
	}
	fmt.Fprintf(a.Err, "%s: ", output.Clean(question))
	defer fmt.Fprintln(a.Err)
	in, ok := a.In.(*os.File)
	if !ok {
		line, err := a.readLine()
		return strings.TrimRight(line, "\r\n"), err
	}
	shown, err := term.GetState(int(in.Fd()))
	if err != nil {
		return "", err
	}
	secret, err := a.interruptible(func() (string, error) {
		secret, err := term.ReadPassword(int(in.Fd()))
		return string(secret), err
	})
	if errors.Is(err, context.Canceled) {
		err = errors.Join(err, term.Restore(int(in.Fd()), shown))
	}
	return secret, ended(err)
}

// interruptible returns what read returns, or context.Canceled after Ctrl-C. Then the read, which nothing can cancel,
// ends with the program.
func (a *App) interruptible(read func() (string, error)) (string, error) {
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := read()
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-a.Interrupted:
		return "", context.Canceled
	}
}

func (a *App) mayAsk(question, flag string) error {
	if a.Interactive && !a.Flags.NoInput {
		return nil
	}
	err := fmt.Errorf("%s: %w", strings.TrimRight(question, " :?"), errNoTerminal)
	return exit.With(exit.Usage, err, "pass "+flag)
}

func (a *App) readLine() (string, error) {
	if a.lines == nil {
		a.lines = bufio.NewReader(a.In)
	}
	line, err := a.interruptible(func() (string, error) { return a.lines.ReadString('\n') })
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(a.Err)
	}
	if errors.Is(err, io.EOF) && line != "" {
		err = nil
	}
	return line, ended(err)
}

// ended returns err, and says in words that the input ended without an answer.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return exit.With(exit.Failed, errors.New("the input ended without an answer; nothing was changed"), "")
	}
	return err
}

// stdinLimit bounds what is read from standard input.
const stdinLimit = 16 << 20

// ReadFile returns the content of a file, or of standard input if name is "-".
func (a *App) ReadFile(name string) ([]byte, error) {
	if name != "-" {
		return os.ReadFile(name)
	}
	content, err := io.ReadAll(io.LimitReader(a.In, stdinLimit+1))
	if err == nil && len(content) > stdinLimit {
		return nil, fmt.Errorf("standard input has more than %d MiB; pass a file instead", stdinLimit>>20)
	}
	return content, err
}

// ReadSecret returns the secret in a file (or standard input for "-"), without the line break at its end. Without a file
// it asks.
func (a *App) ReadSecret(file, question, flag string) (string, error) {
	if file == "" {
		return a.AskSecret(question, flag)
	}
	content, err := a.ReadFile(file)
	return strings.TrimRight(string(content), "\r\n"), err
}
