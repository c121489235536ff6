package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// Block is a fenced block of a page.
type Block struct {
	Line int // of its opening fence, counted from 1
	Text string
	// Run means that bash runs it, and Retry that bash repeats it until it succeeds.
	Run, Retry bool
	// Output are the lines that it must print; empty when the page shows no output.
	Output []string
}

// notRun are the info strings of blocks without commands.
var notRun = map[string]bool{
	"go": true, "json": true, "yaml": true, "ini": true, "toml": true, "text": true, "http": true, "promql": true, "mermaid": true,
}

var reason = regexp.MustCompile(`^sh notest: \S`)

// Blocks returns the blocks of a page that bash runs, in order, and the number of command
// blocks that it does not run.
func Blocks(page string) (run []Block, skipped int, err error) {
	var open *Block
	var info string
	for i, line := range strings.Split(page, "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && open == nil:
			open, info = &Block{Line: i + 1}, strings.TrimSpace(strings.TrimSpace(line)[3:])
		case !fence && open != nil:
			open.Text += line + "\n"
		case fence:
			switch {
			case info == "sh test", info == "sh test retry":
				open.Run, open.Retry = true, info == "sh test retry"
				run = append(run, *open)
			case reason.MatchString(info):
				skipped++
			case info == "text output":
				if len(run) == 0 {
					return nil, 0, fmt.Errorf("line %d: no block above this one prints anything", open.Line)
				}
				run[len(run)-1].Output = strings.Split(strings.TrimSpace(open.Text), "\n")
			case !notRun[info]:
				return nil, 0, fmt.Errorf("line %d: the info string %q says neither \"sh test\" nor \"sh notest: reason\"", open.Line, info)
			}
			open = nil
		}
	}
	if open != nil {
		return nil, 0, fmt.Errorf("line %d: the block is not closed", open.Line)
	}
	return run, skipped, nil
}

// Missing returns the first line of want that is not in output after the preceding lines;
// empty when all are. Sequences of blanks match each other, and … in a line of want matches
// any text.
func Missing(output string, want []string) string {
	lines := strings.Split(output, "\n")
	for _, w := range want {
		w = strings.Join(strings.Fields(w), " ")
		if w == "" || w == "…" {
			continue
		}
		parts := strings.Split(w, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern := regexp.MustCompile(strings.Join(parts, ".*"))
		at := -1
		for i, line := range lines {
			if pattern.MatchString(strings.Join(strings.Fields(line), " ")) {
				at = i
				break
			}
		}
		if at < 0 {
			return w
		}
		lines = lines[at+1:]
	}
	return ""
}
