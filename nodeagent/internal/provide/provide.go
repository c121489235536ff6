// Package provide asks an operator's programs on the node for placeholders of an
// instance, such as the host's address in a mesh.
//
// Invariants: a program that fails, hangs or prints too much gives nothing and is told;
// no start fails by it. What is asked, how many programs run at once on the node, how long
// they take and what is taken of the answers is bounded. What a program writes is in no note,
// error or log, wherever it writes it: it may hold a secret.
package provide

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
	// Timeout is how long a program may take, unless its agent is told otherwise.
	Timeout     = 5 * time.Second
	maxPrograms = 16
	// maxRunning is how many run at once, of all starts of the node together.
	maxRunning = 8
	maxOutput  = 64 << 10
	maxKeys    = 64
	maxValue   = 4 << 10
	// fresh is how long an answer is used again, freshFailure how long a failure; of
	// both together maxCached are kept.
	fresh        = time.Minute
	freshFailure = 10 * time.Second
	maxCached    = 256
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
	run     func(context.Context, dropin.Job) (said string, err error)
	timeout time.Duration
	now     func() time.Time
	log     *slog.Logger
	// running has an element for each program that runs.
	running chan struct{}

	mu sync.Mutex
	// cached are the latest answers, by program and question.
	cached map[string]answer
	// hung are the programs that hung last, by name, maxPrograms of them: each would hold up
	// every start, whatever it is asked.
	hung map[string]answer
}

// answer is what a program gave, or why it gave nothing.
type answer struct {
	values map[string]string
	err    error
	at     time.Time
}

// New makes the providers of a directory, an absolute path; "" has none. timeout bounds each program.
func New(dir string, timeout time.Duration, now func() time.Time, log *slog.Logger) *Providers {
	return &Providers{
		dir: dropin.Dir(dir), run: dropin.Dir(dir).Run, timeout: timeout, now: now, log: log,
		running: make(chan struct{}, maxRunning), cached: map[string]answer{}, hung: map[string]answer{},
	}
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
			notes = append(notes, fmt.Sprintf("the variable provider %s gave nothing: %s; run it on its node to see more", program, errs.MessageOf(failed[n])))
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

// ask has a program's answer: one that is fresh, or else its own, once it may run.
func (p *Providers) ask(ctx context.Context, program string, question []byte) (map[string]string, error) {
	about := program + "\x00" + string(question)
	if known, ok := p.known(program, about); ok {
		return known.values, known.err
	}
	select {
	case p.running <- struct{}{}:
	case <-ctx.Done():
		return nil, errs.Wrap("provide.ask", ctx.Err())
	}
	defer func() { <-p.running }()
	if known, ok := p.known(program, about); ok { // it hung for others meanwhile
		return known.values, known.err
	}
	values, err := p.answer(ctx, program, question)
	if ctx.Err() != nil { // that says nothing of the program
		return values, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(err, dropin.ErrLate) {
		keep(p.hung, maxPrograms, program, answer{values, err, p.now()})
	} else {
		keep(p.cached, maxCached, about, answer{values, err, p.now()})
	}
	return values, err
}

// keep has answers hold one more, and no more than so many.
func keep(answers map[string]answer, most int, about string, a answer) {
	if _, ok := answers[about]; !ok && len(answers) >= most {
		clear(answers)
	}
	answers[about] = a
}

// known is an answer that is used again.
func (p *Providers) known(program, about string) (a answer, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if a, ok = p.cached[about]; ok && a.lasts(now) {
		return a, true
	}
	a, ok = p.hung[program]
	return a, ok && a.lasts(now)
}

// lasts reports whether an answer is fresh.
func (a answer) lasts(now time.Time) bool {
	if a.err != nil {
		return now.Sub(a.at) < freshFailure
	}
	return now.Sub(a.at) < fresh
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

// Parse reads what a program printed: a JSON object of texts, numbers and truths, or lines
// KEY=VALUE, of which empty ones and those that begin with # say nothing. Invalid tells
// what cannot be used, without a word of it.
func Parse(out []byte) (map[string]string, error) {
	if !utf8.Valid(out) || bytes.IndexByte(out, 0) >= 0 {
		return nil, errs.New(errs.Invalid, "what it printed is no text")
	}
	if text := bytes.TrimSpace(out); bytes.HasPrefix(text, []byte("{")) {
		return fromJSON(text)
	}
	return fromLines(string(out))
}

// take adds a value; where says where it was printed.
func take(values map[string]string, k, v, where string) error {
	switch values[k] = v; {
	case !key.MatchString(k):
		return errs.New(errs.Invalid, "it printed a name that no placeholder has (%s): it begins with a letter or _, and has at most 64 letters, digits, _ . and -", where)
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
		return nil, errs.New(errs.Invalid, "what it printed begins as a JSON object and is none")
	}
	values := map[string]string{}
	for n, k := range slices.Sorted(maps.Keys(object)) {
		where := fmt.Sprintf("number %d in order of name", n+1)
		var text string
		switch v := object[k].(type) {
		case nil: // it has none
			continue
		case string:
			text = v
		case json.Number, bool:
			text = fmt.Sprint(v)
		default:
			return nil, errs.New(errs.Invalid, "it printed a value that is neither text, number nor truth (%s)", where)
		}
		if err := take(values, k, text, where); err != nil {
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
			return nil, errs.New(errs.Invalid, "it printed what is not KEY=VALUE (line %d)", n)
		}
		if err := take(values, strings.TrimSpace(k), v, fmt.Sprintf("line %d", n)); err != nil {
			return nil, err
		}
	}
	return values, nil
}
