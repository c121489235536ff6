// Package provider runs an operator's programs on the node, which provide placeholders for an
// instance, such as the host's address in a mesh network.
//
// Invariants: a program that fails, hangs or prints too much provides nothing and is reported;
// the start continues. Input, number of concurrent programs, run time and output are
// limited. The output is in no note, error or log, because it may contain a secret.
package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	// Timeout is the default time limit of a program.
	Timeout     = 5 * time.Second
	maxPrograms = 16
	// maxRunning is the number of concurrent programs on the node.
	maxRunning = 8
	maxOutput  = 64 << 10
	maxKeys    = 64
	maxValue   = 4 << 10
	// answerTTL is how long an answer is cached, failureTTL how long a failure; at most
	// maxCached entries are kept.
	answerTTL  = time.Minute
	failureTTL = 10 * time.Second
	maxCached  = 256
)

var key = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,63}$`)

// Facts describe an instance to a program, as JSON on its standard input.
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

// Providers are the programs of a directory. It is safe for concurrent use.
type Providers struct {
	dir     dropin.Dir
	run     func(context.Context, dropin.Job) (said string, err error)
	timeout time.Duration
	now     func() time.Time
	log     *slog.Logger
	// running holds an element per running program.
	running chan struct{}

	mu sync.Mutex
	// cached are the latest answers, by program and input.
	cached map[string]answer
	// hung are the programs that timed out, by name, at most maxPrograms. Their failure
	// is cached for any input, because each call would delay a start.
	hung map[string]answer
}

// answer is the result of a program.
type answer struct {
	values map[string]string
	err    error
	at     time.Time
}

// New returns the programs of a directory, an absolute path; "" means none. timeout limits each
// program.
func New(dir string, timeout time.Duration, now func() time.Time, log *slog.Logger) *Providers {
	return &Providers{
		dir: dropin.Dir(dir), run: dropin.Dir(dir).Run, timeout: timeout, now: now, log: log,
		running: make(chan struct{}, maxRunning), cached: map[string]answer{}, hung: map[string]answer{},
	}
}

// Values returns the placeholders of an instance. If several programs provide the same one, the
// last by name wins. notes name the programs that failed.
func (p *Providers) Values(ctx context.Context, f Facts) (values map[string]string, notes []string) {
	if p.dir == "" {
		return nil, nil
	}
	programs, err := p.programs()
	if err != nil {
		p.log.Warn("the directory of variable providers cannot be read", "cause", err)
		return nil, []string{"variable providers: the directory cannot be read"}
	}
	question, err := json.Marshal(f)
	if err != nil { // cannot happen: text and numbers
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
			p.log.Warn("a variable provider failed", "program", program, "instance", string(f.Instance), "cause", errs.MessageOf(failed[n]))
			notes = append(notes, fmt.Sprintf("the variable provider %s failed: %s; run it on its node to see more", program, errs.MessageOf(failed[n])))
		}
		maps.Copy(values, given[n])
	}
	return values, notes
}

// programs returns the sorted names of the executable files in the directory.
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
		p.log.Warn("too many variable providers: the rest is not run", "asked", maxPrograms, "there", len(names))
		names = names[:maxPrograms]
	}
	return names, err
}

// ask returns a program's answer, from the cache or by running it.
func (p *Providers) ask(ctx context.Context, program string, question []byte) (map[string]string, error) {
	about := program + "\x00" + string(question)
	if known, ok := p.cachedAnswer(program, about); ok {
		return known.values, known.err
	}
	select {
	case p.running <- struct{}{}:
	case <-ctx.Done():
		return nil, errs.Wrap("provider.ask", ctx.Err())
	}
	defer func() { <-p.running }()
	if known, ok := p.cachedAnswer(program, about); ok { // it timed out for another instance meanwhile
		return known.values, known.err
	}
	values, err := p.answer(ctx, program, question)
	if ctx.Err() != nil { // canceled: says nothing about the program
		return values, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(err, dropin.ErrLate) {
		store(p.hung, maxPrograms, program, answer{values, err, p.now()})
	} else {
		store(p.cached, maxCached, about, answer{values, err, p.now()})
	}
	return values, err
}

// store adds an answer to a cache of limited size.
func store(answers map[string]answer, most int, about string, a answer) {
	if _, ok := answers[about]; !ok && len(answers) >= most {
		clear(answers)
	}
	answers[about] = a
}

// cachedAnswer returns a valid answer from the cache.
func (p *Providers) cachedAnswer(program, about string) (a answer, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if a, ok = p.cached[about]; ok && a.isFresh(now) {
		return a, true
	}
	a, ok = p.hung[program]
	return a, ok && a.isFresh(now)
}

// isFresh reports whether an answer is still valid.
func (a answer) isFresh(now time.Time) bool {
	if a.err != nil {
		return now.Sub(a.at) < failureTTL
	}
	return now.Sub(a.at) < answerTTL
}

// answer runs a program.
func (p *Providers) answer(ctx context.Context, program string, question []byte) (map[string]string, error) {
	var out bytes.Buffer
	job := dropin.Job{Program: program, Input: question, Output: &out, OutputBytes: maxOutput, Timeout: p.timeout, Unheard: true}
	if _, err := p.run(ctx, job); err != nil {
		return nil, err
	}
	return Parse(out.Bytes())
}

// Parse reads a program's output: a JSON object of strings, numbers and booleans, or lines
// KEY=VALUE; empty lines and lines that begin with # are ignored. It returns Invalid with the
// reason, without any of the output.
func Parse(out []byte) (map[string]string, error) {
	if !utf8.Valid(out) || bytes.IndexByte(out, 0) >= 0 {
		return nil, errs.New(errs.Invalid, "its output is not text")
	}
	if text := bytes.TrimSpace(out); bytes.HasPrefix(text, []byte("{")) {
		return fromJSON(text)
	}
	return fromLines(string(out))
}

// addValue adds a value. where is its position, for error messages.
func addValue(values map[string]string, k, v, where string) error {
	switch values[k] = v; {
	case !key.MatchString(k):
		return errs.New(errs.Invalid, "it printed an invalid name (%s): a name begins with a letter or _ and has at most 64 letters, digits, _ . and -", where)
	case len(v) > maxValue:
		return errs.New(errs.Invalid, "it printed a value of more than %d bytes (%s)", maxValue, where)
	case len(values) > maxKeys:
		return errs.New(errs.Invalid, "it printed more than %d values", maxKeys)
	}
	return nil
}

func fromJSON(text []byte) (map[string]string, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil || dec.More() {
		return nil, errs.New(errs.Invalid, "its output begins like a JSON object but is not valid JSON")
	}
	values := map[string]string{}
	for n, k := range slices.Sorted(maps.Keys(object)) {
		where := fmt.Sprintf("number %d in order of name", n+1)
		var text string
		switch v := object[k].(type) {
		case nil: // no value
			continue
		case string:
			text = v
		case json.Number, bool:
			text = fmt.Sprint(v)
		default:
			return nil, errs.New(errs.Invalid, "it printed a value that is not a string, number or boolean (%s)", where)
		}
		if err := addValue(values, k, text, where); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func fromLines(text string) (map[string]string, error) {
	values := map[string]string{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok {
			return nil, errs.New(errs.Invalid, "its output is not KEY=VALUE (line %d)", n)
		}
		if err := addValue(values, strings.TrimSpace(k), v, fmt.Sprintf("line %d", n)); err != nil {
			return nil, err
		}
	}
	return values, nil
}
