package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/output/terminal"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/tidwall/gjson"
)

// session is an open console of an instance, and of the next one of its name.
type session struct {
	a      *app.App
	client *orrery.Client
	// name, uid and group are those of the instance.
	name, uid, group string
	options          attachOptions
	// out and notes get whole lines: those of the server, and those about it.
	out, notes io.Writer
	colours    bool
	// words learn from the output; nil if nothing is completed.
	words *terminal.Words
	// onSent is called after the last line was sent; it may be nil.
	onSent func(ctx context.Context)

	// mu guards current, which is nil while the instance does not run.
	mu      sync.Mutex
	current *orrery.Attachment
	// writing guards out.
	writing sync.Mutex
}

// is sets the instance of the session.
func (s *session) is(row output.Row) {
	s.name = gjson.GetBytes(row, "id").String()
	s.uid, s.group = gjson.GetBytes(row, "uid").String(), gjson.GetBytes(row, "group").String()
}

// run shows the console and sends lines until the session ends. It returns nil if the user left.
func (s *session) run(ctx context.Context, lines <-chan string) error {
	options := orrery.ConsoleOptions{Lines: s.options.lines, OnReconnect: app.Reconnecting(s.note)}
	if options.Lines == 0 || options.Lines == automaticLines {
		options.Lines = -1
	}
	attachment, err := s.client.Attach(ctx, s.uid, options)
	if err != nil {
		return leftOr(ctx, err)
	}
	sending := sync.WaitGroup{}
	defer sending.Wait()
	// leftOr looks at ctx itself: a child may get the cause after the attachment has failed.
	typing, stop := context.WithCancel(ctx)
	defer stop()
	s.use(attachment)
	sending.Go(func() { s.send(typing, lines) })
	for {
		end, err := s.show(attachment)
		s.use(nil)
		_ = attachment.Close() // always nil
		if err != nil {
			return leftOr(ctx, err)
		}
		if s.options.once {
			return nil
		}
		if options.Offset, err = s.awaitRestart(ctx, end); err != nil || options.Offset == nil {
			return leftOr(ctx, err)
		}
		if attachment, err = s.client.Attach(ctx, s.uid, options); err != nil {
			return leftOr(ctx, err)
		}
		s.note("%s runs again", s.name)
		s.use(attachment)
	}
}

// leftOr returns nil if the user left, or the end of the input ended the session, and otherwise why it ended.
func leftOr(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil, errors.Is(cause, context.Canceled), errors.Is(cause, context.DeadlineExceeded):
		return err
	case errors.Is(cause, errLeft):
		return nil
	default:
		return cause
	}
}

func (s *session) use(attachment *orrery.Attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = attachment
}

// maxBatch is how many bytes of output are written at once.
const maxBatch = 64 << 10

// ended is how a console ended, and the offset after its last line.
type ended struct {
	*orrery.ConsoleEnd
	offset int64
}

// show prints the events of an attachment until the instance ends.
func (s *session) show(attachment *orrery.Attachment) (end ended, err error) {
	batch := make(chan orrery.ConsoleEvent, 1024)
	failed := make(chan error, 1)
	go func() {
		defer close(batch)
		for e, err := range attachment.Events() {
			if err != nil {
				failed <- err
				return
			}
			batch <- e
		}
	}()
	var text []byte
	for e := range batch {
		end.offset = e.Offset
		if e.Kind == orrery.ConsoleOutput {
			text = append(terminal.AppendClean(text, e.Line, s.colours), '\n')
			if s.words != nil {
				s.words.Learn(terminal.Clean(e.Line))
			}
			if len(batch) > 0 && len(text) < maxBatch {
				continue // the input line is drawn again after each write
			}
		}
		if err := s.write(s.out, text); err != nil {
			go func() { // the caller closes the attachment, which ends this
				for range batch {
				}
			}()
			return end, err
		}
		text = text[:0]
		switch e.Kind {
		case orrery.ConsoleSuppressed:
			s.note("%s", SkippedText(e))
		case orrery.ConsoleWaiting:
			s.note("waiting: %s", e.Message)
		case orrery.ConsoleRefused:
			s.note("not typed: %s", e.Message)
		case orrery.ConsoleEnded:
			end.ConsoleEnd = e.End
			s.note("%s %s", s.name, EndText(e.End))
		case orrery.ConsoleOutput:
		}
	}
	if err := s.write(s.out, text); err != nil {
		return end, err
	}
	select {
	case err := <-failed:
		return end, err
	default:
	}
	if end.ConsoleEnd == nil {
		return end, io.EOF // closed
	}
	return end, nil
}

// send types lines.
func (s *session) send(ctx context.Context, lines <-chan string) {
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				if s.onSent != nil {
					s.onSent(ctx)
				}
				return
			}
			s.sendLine(ctx, line)
		case <-ctx.Done():
			return
		}
	}
}

func (s *session) sendLine(ctx context.Context, line string) {
	s.mu.Lock()
	attachment := s.current
	s.mu.Unlock()
	if attachment == nil {
		s.note("not typed: %s does not run", s.name)
		return
	}
	if s.words != nil {
		s.words.Typed(line)
	}
	err := attachment.Send(ctx, line)
	switch {
	case err == nil, ctx.Err() != nil:
	case errors.Is(err, orrery.ErrUnknownOutcome):
		s.note("the connection was lost: it is not known whether %q was typed; look at the output before you type it again", line)
	default:
		s.note("%q was not typed: %v", line, err)
	}
}

// awaitRestart waits until the instance, or another one of its name, runs again. It returns the offset to continue at;
// nil if that takes too long.
func (s *session) awaitRestart(ctx context.Context, end ended) (*int64, error) {
	s.note("waiting up to %v for %s to start again", restartTimeout, s.name)
	waiting, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	events, stop, err := app.Watch(waiting, s.client, orrery.EventsOptions{Types: []string{"INSTANCE_STATE_CHANGED"}, Group: s.group})
	if err == nil {
		defer stop()
	}
	for err == nil {
		row, _, getErr := app.Get(waiting, s.client, kinds.Get("instance"), "", s.name)
		if getErr == nil && !kinds.IsOver(gjson.GetBytes(row, "state").String()) {
			offset, other := end.offset, gjson.GetBytes(row, "uid").String() != s.uid
			if other {
				offset = 0 // it has another log
			}
			if other || gjson.GetBytes(row, "generation").Int() > end.Generation {
				s.is(row)
				return &offset, nil
			}
		}
		if _, ok := <-events; !ok {
			err = stop()
		}
	}
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		s.note("%s was not started again", s.name)
		return nil, nil //nolint:nilnil // nil is documented
	}
	return nil, err
}

// note prints a note of this program.
func (s *session) note(format string, args ...any) {
	text := "-- " + terminal.Clean(fmt.Sprintf(format, args...))
	if s.colours {
		text = s.a.Style().Dim(text)
	}
	_ = s.write(s.notes, []byte(text+"\n")) // output that follows returns the error
}

// write prints whole lines.
func (s *session) write(to io.Writer, lines []byte) error {
	if len(lines) == 0 {
		return nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	_, err := to.Write(lines)
	return err
}

// SkippedText returns the note about output that was skipped.
func SkippedText(e orrery.ConsoleEvent) string {
	switch e.Suppressed {
	case 0:
		return e.Message
	case 1:
		return "1 line skipped: the server prints faster than 1 MiB/s"
	}
	return grouped(e.Suppressed) + " lines skipped: the server prints faster than 1 MiB/s"
}

// EndText returns the note about the end of an instance.
func EndText(end *orrery.ConsoleEnd) string {
	if end.State == "" {
		return "ended: " + end.Message
	}
	text := "ended: " + end.State
	if end.ExitCode != nil {
		text += fmt.Sprintf(", exit code %d", *end.ExitCode)
	}
	if end.Message != "" {
		text += ", " + end.Message
	}
	return text
}

// grouped returns a number with commas: 1,234,567.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
