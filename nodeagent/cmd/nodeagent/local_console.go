package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// console prints output from an offset or the last lines on. With -follow it continues as more
// is written, also after a restart of the agent.
func (c *localCommand) console(ctx context.Context) error {
	if c.lines < 0 {
		return errs.Field("lines", "-lines must not be negative")
	}
	ids, err := c.findAll(ctx, c.words)
	if err != nil {
		return err
	}
	next, err := c.begin(ctx, ids[0])
	if err != nil {
		return err
	}
	out := sink{command: c, at: next}
	for {
		more, err := c.copy(ctx, ids[0], &out)
		if err != nil {
			return err
		}
		if !more && (!c.follow || !pause.For(ctx, pollInterval)) {
			return out.end()
		}
	}
}

// copy prints a chunk of output. It returns false if there is no more now.
func (c *localCommand) copy(ctx context.Context, id fleet.InstanceID, out *sink) (more bool, err error) {
	chunk, err := c.agent.Read(ctx, id, out.at+int64(len(out.partial)), 0)
	switch {
	case err == nil:
		out.away = false
		return len(chunk.Data) > 0, out.write(chunk)
	case c.follow && ctx.Err() != nil:
		return false, nil
	case c.follow && errs.Is(err, errs.Unavailable):
		if !out.away {
			fmt.Fprintln(c.stderr, "nodeagent local: the agent does not answer; waiting for it")
		}
		out.away = true
		return false, nil
	}
	return false, err
}

// begin is the offset to print from.
func (c *localCommand) begin(ctx context.Context, id fleet.InstanceID) (int64, error) {
	if c.from >= 0 {
		return c.from, nil
	}
	lines, err := c.agent.Tail(ctx, id, c.lines)
	if err != nil {
		return 0, err
	}
	if len(lines) > 0 {
		return lines[0].Offset, nil
	}
	end, err := c.agent.Read(ctx, id, math.MaxInt64, 1) // moves to the end
	return end.Next, err
}

// sink prints output, as raw bytes or as one JSON object per line.
type sink struct {
	command *localCommand
	// at is the offset of the next output, and partial the beginning of an unfinished line.
	at      int64
	partial []byte
	// away is set while the agent does not answer.
	away bool
}

func (s *sink) write(chunk client.Chunk) error {
	if start := chunk.Next - int64(len(chunk.Data)); start != s.at+int64(len(s.partial)) { // discarded output, or a new file
		s.at, s.partial = start, nil
	}
	if !s.command.json {
		s.at = chunk.Next
		_, err := s.command.stdout.Write(chunk.Data)
		return err
	}
	s.partial = append(s.partial, chunk.Data...)
	for {
		line, rest, ok := bytes.Cut(s.partial, []byte{'\n'})
		if !ok {
			return nil
		}
		if err := s.line(line); err != nil {
			return err
		}
		s.at, s.partial = s.at+int64(len(line))+1, rest
	}
}

func (s *sink) line(text []byte) error {
	return s.command.print(client.Line{Offset: s.at, Text: strings.TrimSuffix(string(text), "\r")})
}

// end prints an unfinished line, or says from where to continue.
func (s *sink) end() error {
	if s.command.follow {
		fmt.Fprintf(s.command.stderr, "nodeagent local: continue with -from %d\n", s.at)
		return nil
	}
	if len(s.partial) == 0 {
		return nil
	}
	return s.line(s.partial)
}
