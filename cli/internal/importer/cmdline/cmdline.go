// Package cmdline reads and writes the command lines of servers.
package cmdline

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/lazyregexp"
)

var (
	unquoted = lazyregexp.New(`^[A-Za-z0-9_@%+=:,./^-]+$`)
	// oneVariable is a word that is only a variable.
	oneVariable = lazyregexp.New(`^\$[A-Za-z_][A-Za-z0-9_]*$`)
	heapOption  = lazyregexp.New(`(?:^|\s)-Xmx(\d{1,12})([kKmMgGtT]?)(?:\s|$)`)
	portOption  = lazyregexp.New(`^(--?(?:port|p|server-port)=|\+port=)(\d{1,5})$`)
)

// Quote returns a word for a shell.
func Quote(word string) string {
	if unquoted().MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// QuoteExpanding returns a word of systemd for a shell. Both replace ${NAME} and $NAME; systemd writes
// $$ for a dollar sign, and splits a word that is only $NAME.
func QuoteExpanding(word string) string {
	if !strings.Contains(word, "$") || oneVariable().MatchString(word) {
		return cmp.Or(oneVariable().FindString(word), Quote(word))
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$$", `\$`).Replace(word) + `"`
}

// QuoteAll returns a command line for a shell.
func QuoteAll(words []string, each func(string) string) string {
	out := make([]string, len(words))
	for n, word := range words {
		out[n] = each(word)
	}
	return strings.Join(out, " ")
}

// Heap returns the -Xmx of a command line in MiB. Without -Xmx it returns 0.
func Heap(line string) int {
	match := heapOption().FindStringSubmatch(line)
	if match == nil {
		return 0
	}
	n, _ := strconv.Atoi(match[1])
	switch strings.ToLower(match[2]) {
	case "":
		n >>= 20
	case "k":
		n >>= 10
	case "g":
		n <<= 10
	case "t":
		n <<= 20
	}
	return min(n, mostMiB)
}

// mostMiB is more memory than a machine has.
const mostMiB = 1 << 30

// WithOverhead returns the memory that a Java process uses whose heap is full, in MiB.
func WithOverhead(heap int) int { return heap + max(256, heap*15/100) }

// FindPort returns the port that a command line names, and its words with %PORT% in its place.
func FindPort(words []string) (port int, out []string) {
	out = slices.Clone(words)
	for n, word := range words {
		if match := portOption().FindStringSubmatch(word); match != nil {
			port, _ = strconv.Atoi(match[2])
			out[n] = match[1] + "%PORT%"
			return port, out
		}
		if n > 0 && slices.Contains([]string{"--port", "-port", "-p", "+port", "--server-port"}, words[n-1]) {
			if p, err := strconv.ParseUint(word, 10, 16); err == nil && p > 0 {
				out[n] = "%PORT%"
				return int(p), out
			}
		}
	}
	return 0, out
}

var serverPort = lazyregexp.New(`(?m)^[ \t]*server-port[ \t]*[=:][ \t]*(\d{1,5})[ \t]*\r?$`)

// ServerPort returns the server-port of a server.properties. Without server-port it returns 0.
func ServerPort(text []byte) int {
	match := serverPort().FindSubmatch(text)
	if match == nil {
		return 0
	}
	port, _ := strconv.Atoi(string(match[1]))
	if port > 65535 {
		return 0
	}
	return port
}

// Unwrap returns the command that screen or tmux runs, and the name of that program. It returns other
// commands unchanged.
func Unwrap(words []string) (inner []string, program string) {
	if len(words) == 0 {
		return nil, ""
	}
	program = filepath.Base(words[0])
	valued := map[string]string{"screen": "-S -c -e -h -p -s -t -T", "tmux": "-s -S -L -f -n -c -x -y -e"}[program]
	if valued == "" {
		return words, ""
	}
	options := strings.Fields(valued)
	for n := 1; n < len(words); n++ {
		switch word := words[n]; {
		case program == "tmux" && (word == "new-session" || word == "new"):
		case !strings.HasPrefix(word, "-"):
			return words[n:], program
		case slices.Contains(options, word) || program == "screen" && strings.HasSuffix(word, "S") && len(word) > 2:
			n++ // the option's value
		}
	}
	return nil, program
}
