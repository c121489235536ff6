package startvalue

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/orreryhq/orrery/libs/errs"
)

// place is the quoting around a placeholder.
type place uint8

const (
	unquoted place = iota + 1
	doubleQuoted
	singleQuoted
	comment
)

// errUnreadable is wrapped in the error for a text that is not a shell program.
var errUnreadable = errors.New("the shell cannot read the command")

// places finds the quoting around each mark, as parsed by bash and, if possible, by a plain sh.
// The error is Invalid if a reference would not be safe.
func (v Values) places(text string, marks []mark, tainted map[string]string) ([]place, error) {
	asBash, err := v.read(text, marks, tainted, syntax.LangBash)
	if err != nil {
		return nil, err
	}
	asPOSIX, err := v.read(text, marks, tainted, syntax.LangPOSIX)
	switch {
	case errors.Is(err, errUnreadable): // a plain sh refuses it too
		return asBash, nil
	case err == nil && !slices.Equal(asBash, asPOSIX):
		return nil, errs.Field("variables", "cannot be given at a start: bash and sh read the command differently; write it so that both read the same")
	}
	return asBash, err
}

// read finds the quoting around each mark in one shell dialect.
func (v Values) read(text string, marks []mark, tainted map[string]string, lang syntax.LangVariant) ([]place, error) {
	file, err := syntax.NewParser(syntax.Variant(lang), syntax.KeepComments(true)).Parse(strings.NewReader(text), "")
	if err != nil {
		return nil, &errs.Error{
			Kind: errs.Invalid, Field: "variables", Err: errors.Join(errUnreadable, err),
			Message: "cannot be given at a start: the command is no shell program: " + err.Error() + "; correct the command",
		}
	}
	r := &reader{
		values: v, text: text, marks: marks, tainted: tainted,
		places: make([]place, len(marks)), functions: map[string]bool{}, expanded: map[string]int{},
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.FuncDecl:
			if n.Name != nil {
				r.functions[n.Name.Value] = true
			}
		case *syntax.Stmt:
			r.redirected = r.redirected || redirectsShell(n)
		}
		return true
	})
	syntax.Walk(file, r.visit)
	if r.err != nil {
		return nil, r.err
	}
	for n, m := range marks {
		if r.places[n] == 0 {
			return nil, refuse(m.name, "a place that is no argument of a program")
		}
	}
	for name, key := range tainted {
		if mentions(text, name) > r.expanded[name] {
			return nil, refuse(key, "the environment variable "+name+", which code within the command reads")
		}
	}
	return r.places, nil
}

// expands reports whether a text may expand one of the variables.
func expands(text string, variables map[string]string) bool {
	for name := range variables {
		if mentions(text, name) > 0 {
			return true
		}
	}
	return false
}

// mentions counts the positions at which a text may expand a variable.
func mentions(text, name string) (n int) {
	for rest := text; ; {
		i := strings.Index(rest, name)
		if i < 0 {
			return n
		}
		before, after := byte(' '), byte(' ')
		if i > 0 {
			before = rest[i-1]
		}
		if rest = rest[i+len(name):]; rest != "" {
			after = rest[0]
		}
		if strings.IndexByte("${!#", before) >= 0 && !wordByte(after) {
			n++
		}
	}
}

func wordByte(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// reader walks a parsed command and finds the quoting of each mark.
type reader struct {
	values    Values
	text      string
	marks     []mark
	tainted   map[string]string
	places    []place
	functions map[string]bool
	// redirected is true if the shell's own output is redirected.
	redirected bool
	// expanded counts the safe expansions of tainted variables.
	expanded map[string]int
	// stack are the ancestors of the visited node.
	stack []syntax.Node
	err   error
}

// redirectsShell reports whether a statement redirects the output of the shell itself, and thus of
// every following command, to something not yet open: exec >run.sh.
func redirectsShell(s *syntax.Stmt) bool {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	text, static := literal(call.Args[len(call.Args)-1])
	if text != "exec" && (static || len(call.Args) > 1) {
		return false
	}
	return slices.ContainsFunc(s.Redirs, func(r *syntax.Redirect) bool {
		switch r.Op {
		case syntax.RdrIn, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
			return false
		case syntax.DplOut: // a descriptor, or the name of a file
			text, _ := literal(r.Word)
			return text == "" || strings.Trim(text, "0123456789-") != ""
		}
		return true
	})
}

func (r *reader) visit(n syntax.Node) bool {
	if n == nil {
		r.stack = r.stack[:len(r.stack)-1]
		return true
	}
	r.stack = append(r.stack, n)
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	switch n := n.(type) {
	case *syntax.Comment:
		r.settle(from, to, comment)
	case *syntax.SglQuoted:
		if r.holds(from, to) {
			r.judge(from, to, singleQuoted, n.Dollar)
		}
	case *syntax.Lit:
		if r.holds(from, to) {
			at := unquoted
			dollar := false
			if q, ok := r.above(1).(*syntax.DblQuoted); ok {
				at, dollar = doubleQuoted, q.Dollar
			}
			r.judge(from, to, at, dollar)
		}
	case *syntax.ParamExp:
		if n.Param == nil {
			break
		}
		if key, ok := r.tainted[n.Param.Value]; ok {
			r.expansion(n, key)
		}
	}
	return true
}

// above returns the node a number of levels above the visited one, or nil.
func (r *reader) above(levels int) syntax.Node {
	if n := len(r.stack) - 1 - levels; n >= 0 {
		return r.stack[n]
	}
	return nil
}

func (r *reader) holds(from, to int) bool {
	return slices.ContainsFunc(r.marks, func(m mark) bool { return m.from < to && m.to > from })
}

// settle records the quoting of the marks within a range.
func (r *reader) settle(from, to int, p place) {
	for n, m := range r.marks {
		if m.from >= from && m.to <= to {
			r.places[n] = p
		}
	}
}

// judge checks the marks within a literal. A $ before a quote changes its meaning.
func (r *reader) judge(from, to int, p place, dollar bool) {
	for _, m := range r.marks {
		if m.from >= to || m.to <= from {
			continue
		}
		where := ""
		switch {
		case m.from < from || m.to > to:
			where = "a word that it divides"
		case dollar:
			where = "a quote that begins with $"
		case p != singleQuoted && m.from > 0 && strings.IndexByte(`\$`, r.text[m.from-1]) >= 0:
			where = fmt.Sprintf("a word behind %q", r.text[m.from-1])
		}
		if where != "" {
			r.fail(refuse(m.name, where))
			return
		}
		levels := 1
		if p == doubleQuoted {
			levels = 2
		}
		r.fail(r.argument(levels, m.name, m.from))
	}
	r.settle(from, to, p)
}

// expansion checks the expansion of a variable that contains a start value.
func (r *reader) expansion(p *syntax.ParamExp, key string) {
	plain := p.Exp == nil && p.Repl == nil && p.Slice == nil && p.Index == nil && !p.Excl && !p.Length && !p.Width && p.Names == 0
	if _, quoted := r.above(1).(*syntax.DblQuoted); !quoted || !plain {
		r.fail(refuse(key, "the environment variable "+p.Param.Value+", which the command expands without double quotes around it"))
		return
	}
	r.fail(r.argument(2, key, int(p.Pos().Offset())))
	r.expanded[p.Param.Value]++
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// argument returns nil if the word a number of levels above is an argument of a program that does
// not interpret it as code. at is the position of the value in the text.
func (r *reader) argument(levels int, key string, at int) error {
	word, ok := r.above(levels).(*syntax.Word)
	if !ok {
		return refuse(key, describe(r.above(levels)))
	}
	levels++
	assigned := ""
	if a, ok := r.above(levels).(*syntax.Assign); ok {
		if a.Name == nil || a.Index != nil || a.Append || a.Value != word {
			return refuse(key, "a declaration of shell variables")
		}
		assigned = a.Name.Value
		levels++
	}
	call, ok := r.above(levels).(*syntax.CallExpr)
	if !ok {
		return refuse(key, describe(r.above(levels)))
	}
	redirected := false
	for below := syntax.Node(call); ; {
		levels++
		n := r.above(levels)
		switch n := n.(type) {
		case nil:
			return r.call(call, word, use{key: key, at: at, assigned: assigned, redirected: redirected})
		case *syntax.File, *syntax.Block, *syntax.Subshell, *syntax.IfClause, *syntax.WhileClause, *syntax.ForClause,
			*syntax.CaseClause, *syntax.CaseItem, *syntax.TimeClause, *syntax.FuncDecl:
		case *syntax.Stmt:
			redirected = redirected || len(n.Redirs) > 0
		case *syntax.BinaryCmd:
			if pipe := n.Op == syntax.Pipe || n.Op == syntax.PipeAll; pipe && below == syntax.Node(n.X) {
				redirected = true
				if !copies(n.Y) {
					return refuse(key, "a command whose output another program reads")
				}
			}
		default:
			return refuse(key, describe(n))
		}
		below = n
	}
}

// copies reports whether a part of a pipeline only copies its input.
func copies(s *syntax.Stmt) bool {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(s.Redirs) > 0 {
		return false
	}
	for n, w := range call.Args {
		text, static := literal(w)
		if !static || n == 0 && !slices.Contains([]string{"tee", "cat", "logger"}, text) {
			return false
		}
	}
	return true
}

// describe names a syntax node for a message.
func describe(n syntax.Node) string {
	switch n.(type) {
	case *syntax.Redirect:
		return "a redirection or here-document"
	case *syntax.CmdSubst:
		return "a command substitution"
	case *syntax.ProcSubst:
		return "a process substitution"
	case *syntax.ParamExp:
		return "a parameter expansion"
	case *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.BinaryArithm, *syntax.UnaryArithm, *syntax.ParenArithm, *syntax.LetClause, *syntax.CStyleLoop:
		return "arithmetic"
	case *syntax.TestClause, *syntax.BinaryTest, *syntax.UnaryTest, *syntax.ParenTest:
		return "a test"
	case *syntax.DeclClause, *syntax.Assign, *syntax.ArrayElem, *syntax.ArrayExpr:
		return "a declaration of shell variables"
	case *syntax.CaseClause, *syntax.CaseItem, *syntax.WordIter, *syntax.ForClause:
		return "a loop or case"
	}
	return "a place that is no argument of a program"
}

// globs are the characters that make a shell expand a word or change a character's meaning.
const globs = `\*?[]{}`

// literal returns the text of a word that the shell does not expand.
func literal(w *syntax.Word) (text string, static bool) {
	var out strings.Builder
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, globs) {
				return p.Value, p.Value == "["
			}
			out.WriteString(p.Value)
		case *syntax.SglQuoted:
			if p.Dollar {
				return "", false
			}
			out.WriteString(p.Value)
		case *syntax.DblQuoted:
			for _, in := range p.Parts {
				lit, ok := in.(*syntax.Lit)
				if !ok || p.Dollar || strings.Contains(lit.Value, `\`) {
					return "", false
				}
				out.WriteString(lit.Value)
			}
		default:
			return "", false
		}
	}
	return out.String(), true
}
