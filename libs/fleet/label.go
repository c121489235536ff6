package fleet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// LabelOp is how a label expression looks at a label.
type LabelOp string

// The operators of label expressions. An absent label satisfies LabelAbsent,
// LabelNotEqual and LabelNotIn.
const (
	LabelExists   LabelOp = "exists" // key
	LabelAbsent   LabelOp = "absent" // !key
	LabelEqual    LabelOp = "="      // key=value
	LabelNotEqual LabelOp = "!="     // key!=value
	LabelIn       LabelOp = "in"     // key in (a, b)
	LabelNotIn    LabelOp = "notin"  // key notin (a, b)
)

// LabelExpr is a condition on a node's labels.
type LabelExpr struct {
	Key    string
	Op     LabelOp
	Values []string // one for LabelEqual and LabelNotEqual, at least one for LabelIn and LabelNotIn, else none
}

// Matches reports whether labels satisfy the expression.
func (e LabelExpr) Matches(labels map[string]string) bool {
	have, ok := labels[e.Key]
	switch e.Op {
	case LabelExists:
		return ok
	case LabelAbsent:
		return !ok
	case LabelEqual, LabelIn:
		return ok && slices.Contains(e.Values, have)
	case LabelNotEqual, LabelNotIn:
		return !ok || !slices.Contains(e.Values, have)
	}
	return false
}

// String is the expression as it is written.
func (e LabelExpr) String() string {
	switch e.Op {
	case LabelAbsent:
		return "!" + e.Key
	case LabelEqual, LabelNotEqual:
		return e.Key + string(e.Op) + e.Values[0]
	case LabelIn, LabelNotIn:
		return e.Key + " " + string(e.Op) + " (" + strings.Join(e.Values, ", ") + ")"
	case LabelExists:
	}
	return e.Key
}

// ParseLabelExpr reads `key`, `key exists`, `!key`, `key=value`, `key==value`,
// `key!=value`, `key in (a, b)` or `key notin (a, b)`. Keys and values are made of
// letters, digits and _ . / : @ -, a value after = may be empty. The error is
// Invalid and says at which character, counted from 1, it went wrong.
func ParseLabelExpr(text string) (LabelExpr, error) {
	p := &labelParser{text: text}
	e, ok := p.expr()
	if !ok {
		return LabelExpr{}, errs.New(errs.Invalid, "%s at character %d of %q: write key, !key, key=value, key!=value, key in (a, b) or key notin (a, b)", p.wanted, p.at+1, clip(text))
	}
	return e, nil
}

// labelParser reads one expression from left to right.
type labelParser struct {
	text   string
	at     int    // in bytes; all that is accepted is ASCII
	wanted string // what was missing at at
}

func (p *labelParser) expr() (e LabelExpr, ok bool) {
	p.space()
	absent := p.take("!")
	if e.Key, ok = p.word("a label's key is missing"); !ok {
		return e, false
	}
	p.space()
	switch {
	case absent:
		e.Op = LabelAbsent
	case p.at == len(p.text):
		e.Op = LabelExists
	case p.take("!="):
		e.Op, ok = LabelNotEqual, p.value(&e)
	case p.take("=="), p.take("="):
		e.Op, ok = LabelEqual, p.value(&e)
	default:
		ok = p.named(&e)
	}
	if !ok {
		return e, false
	}
	p.space()
	return e, p.expect(p.at == len(p.text), "something is left over")
}

// named reads what follows a key as a word.
func (p *labelParser) named(e *LabelExpr) bool {
	from := p.at
	op, ok := p.word("an operator is missing")
	if !ok {
		return false
	}
	switch e.Op = LabelOp(strings.ToLower(op)); e.Op {
	case LabelExists:
		return true
	case LabelIn, LabelNotIn:
		return p.list(e)
	}
	p.at = from
	return p.expect(false, fmt.Sprintf("%q is no operator", clip(op)))
}

// value reads what follows = or !=; it may be empty.
func (p *labelParser) value(e *LabelExpr) bool {
	p.space()
	from := p.at
	p.letters()
	e.Values = []string{p.text[from:p.at]}
	return true
}

func (p *labelParser) list(e *LabelExpr) bool {
	p.space()
	if !p.expect(p.take("("), `"(" is missing`) {
		return false
	}
	for {
		p.space()
		v, ok := p.word("a value is missing")
		if !ok {
			return false
		}
		e.Values = append(e.Values, v)
		p.space()
		switch {
		case p.take(")"):
			return true
		case !p.expect(p.take(","), `"," or ")" is missing`):
			return false
		}
	}
}

func (p *labelParser) word(missing string) (string, bool) {
	from := p.at
	p.letters()
	return p.text[from:p.at], p.expect(p.at > from, missing)
}

func (p *labelParser) letters() {
	for p.at < len(p.text) && labelLetter(p.text[p.at]) {
		p.at++
	}
}

// labelWord reports whether all of s may stand in a key or value; "" may.
func labelWord(s string) bool {
	p := &labelParser{text: s}
	p.letters()
	return p.at == len(s)
}

func labelLetter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_./:@-", c) >= 0
}

func (p *labelParser) space() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
}

func (p *labelParser) take(s string) bool {
	if !strings.HasPrefix(p.text[p.at:], s) {
		return false
	}
	p.at += len(s)
	return true
}

func (p *labelParser) expect(ok bool, wanted string) bool {
	if !ok {
		p.wanted = wanted
	}
	return ok
}
