// Package provide asks an operator's programs on the node for placeholders of an
// instance, such as the host's address in a mesh.
//
// Invariants: a program that fails, hangs or prints too much gives nothing and is told;
// no start fails by it. What is asked, how long it takes and what is taken of the
// answers is bounded.
package provide

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/dropin"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	// Timeout is how long a program may take, unless its agent is told otherwise.
	Timeout     = 5 * time.Second
	maxPrograms = 16
	maxOutput   = 64 << 10
	maxKeys     = 64
	maxValue    = 4 << 10
	// fresh is how long an answer is used again, maxCached how many are kept.
	fresh     = time.Minute
	maxCached = 256
)

var key = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,63}$`)

// Facts are what a program is told of an instance, as JSON on its standard input.
type Facts struct {
	Instance  fleet.InstanceID  `json:"instance"`
	Name      string            `json:"name"`
	Group     fleet.GroupName   `json:"group"`
	Node      fleet.NodeID      `json:"node"`
	Runtime   fleet.RuntimeName `json:"runtime"`
	Port      int               `json:"port,omitempty"`
	Ports     map[string]int    `json:"ports,omitempty"`
	MemoryMiB int               `json:"memoryMiB"`
}

// Providers are the programs of one directory. It is safe for concurrent use.
type Providers struct {
	dir     dropin.Dir
	timeout time.Duration
	now     func() time.Time
	log     *slog.Logger

	mu sync.Mutex
	// cached are the latest answers, by program and question.
	cached map[string]answer
}

type answer struct {
	values map[string]string
	at     time.Time
}

// New makes the providers of a directory, an absolute path; "" has none. timeout bounds each program.
func New(dir string, timeout time.Duration, now func() time.Time, log *slog.Logger) *Providers {
	return &Providers{dir: dropin.Dir(dir), timeout: timeout, now: now, log: log, cached: map[string]answer{}}
}

// Values are the placeholders that the programs give an instance, those of a later one in
// order of name winning. notes name the programs that gave none.
func (p *Providers) Values(ctx context.Context, f Facts) (values map[string]string, notes []string) {
	if p.dir == "" {
		return nil, nil
	}
	programs, err := p.programs()
	if err != nil {
		p.log.Warn("no variable providers are asked", "cause", err)
		return nil, []string{"variable providers: the directory cannot be read"}
	}
	question, err := json.Marshal(f)
	if err != nil { // text and numbers
		return nil, nil
	}
	given, failed := make([]map[string]string, len(programs)), make([]error, len(programs))
	var all sync.WaitGroup
	for n, program := range programs {
		all.Go(func() { given[n], failed[n] = p.ask(ctx, program, question) })
	}
	all.Wait()
	values = map[string]string{}
	for n, program := range programs {
		if failed[n] != nil && ctx.Err() == nil {
			p.log.Warn("a variable provider gave nothing", "program", program, "instance", string(f.Instance), "cause", errs.MessageOf(failed[n]))
			notes = append(notes, fmt.Sprintf("the variable provider %s gave nothing: %s", program, errs.MessageOf(failed[n])))
		}
		maps.Copy(values, given[n])
	}
	return values, notes
}

// programs are the names in the directory that can be those of programs, in order.
func (p *Providers) programs() (names []string, err error) {
	d, err := os.Open(string(p.dir))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && dropin.ValidName(e.Name()) && fi.Mode().IsRegular() && fi.Mode().Perm()&0o111 != 0 {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	if len(names) > maxPrograms {
		p.log.Warn("there are too many variable providers: the rest is not asked", "asked", maxPrograms, "there", len(names))
		names = names[:maxPrograms]
	}
	return names, err
}

func (p *Providers) ask(ctx context.Context, program string, question []byte) (map[string]string, error) {
	about := program + "\x00" + string(question)
	p.mu.Lock()
	known, ok := p.cached[about]
	p.mu.Unlock()
	if ok && p.now().Sub(known.at) < fresh {
		return known.values, nil
	}
	var out bytes.Buffer
	_, err := p.dir.Run(ctx, dropin.Job{Program: program, Input: question, Output: &out, OutputBytes: maxOutput, Timeout: p.timeout})
	if err != nil {
		return nil, err
	}
	values, err := Parse(out.Bytes())
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.cached) >= maxCached {
		clear(p.cached)
	}
	p.cached[about] = answer{values, p.now()}
	return values, nil
}

// Parse reads what a program printed: a JSON object of texts, numbers and truths, or lines
// KEY=VALUE, of which empty ones and those that begin with # say nothing. Invalid tells
// what cannot be used.
func Parse(out []byte) (map[string]string, error) {
	if !utf8.Valid(out) || bytes.IndexByte(out, 0) >= 0 {
		return nil, errs.New(errs.Invalid, "what it printed is no text")
	}
	var values map[string]string
	var err error
	if text := bytes.TrimSpace(out); bytes.HasPrefix(text, []byte("{")) {
		values, err = fromJSON(text)
	} else {
		values, err = fromLines(string(text))
	}
	if err != nil {
		return nil, err
	}
	if len(values) > maxKeys {
		return nil, errs.New(errs.Invalid, "it printed more than %d values", maxKeys)
	}
	for k, v := range values {
		if !key.MatchString(k) {
			return nil, errs.New(errs.Invalid, "it printed a name that no placeholder has: %.80q", k)
		}
		if len(v) > maxValue {
			return nil, errs.New(errs.Invalid, "the value of %s has more than %d bytes", k, maxValue)
		}
	}
	return values, nil
}

func fromJSON(text []byte) (map[string]string, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil || dec.More() {
		return nil, errs.New(errs.Invalid, "what it printed begins as a JSON object and is none")
	}
	values := map[string]string{}
	for k, v := range object {
		switch v := v.(type) {
		case nil: // it has none
		case string:
			values[k] = v
		case json.Number, bool:
			values[k] = fmt.Sprint(v)
		default:
			return nil, errs.New(errs.Invalid, "the value of %.80q is neither text, number nor truth", k)
		}
	}
	return values, nil
}

func fromLines(text string) (map[string]string, error) {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok {
			return nil, errs.New(errs.Invalid, "it printed a line that is not KEY=VALUE: %.80q", line)
		}
		values[strings.TrimSpace(k)] = v
	}
	return values, nil
}
