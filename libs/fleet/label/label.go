// Package label parses and matches expressions over labels, such as "zone=eu" or "!gpu".
package label

import (
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// LabelOp is the operator of a label expression.
type LabelOp string

// The operators of label expressions. A missing label satisfies LabelAbsent, LabelNotEqual and
// LabelNotIn.
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
	Values []string // one for LabelEqual and LabelNotEqual, one or more for LabelIn and LabelNotIn, otherwise none
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

// String returns the expression in the syntax of ParseLabelExpr.
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

// ParseLabelExpr parses `key`, `key exists`, `!key`, `key=value`, `key==value`, `key!=value`, `key
// in (a, b)` or `key notin (a, b)`. Keys and values consist of letters, digits and _ . / : @ -. A
// value after = or != may be empty. The error is Invalid and gives the position of the mistake,
// counted in characters from 1.
func ParseLabelExpr(text string) (LabelExpr, error) {
	p := &labelParser{text: text}
	e, ok := p.expr()
	if !ok || !p.expect(p.at == len(p.text), "there is unexpected text") {
		return LabelExpr{}, p.mistake()
	}
	return e, nil
}

// mistake returns the error for the mistake that stopped the parser.
func (p *labelParser) mistake() error {
	return errs.New(errs.Invalid, "%s at character %d of %q: use key, !key, key=value, key!=value, key in (a, b) or key notin (a, b)", p.wanted, p.at+1, validate.Clip(p.text))
}

// labelParser parses expressions from left to right.
type labelParser struct {
	text   string
	at     int    // in bytes; only ASCII is accepted
	wanted string // the mistake at position at
}

// expr parses an expression and the space after it.
func (p *labelParser) expr() (e LabelExpr, ok bool) {
	p.space()
	absent := p.take("!")
	if e.Key, ok = p.word("a label key is missing"); !ok {
		return e, false
	}
	p.space()
	switch {
	case absent:
		e.Op = LabelAbsent
	case p.at == len(p.text), p.text[p.at] == ',':
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
	return e, true
}

// named parses an operator that is a word, and its values.
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
	return p.expect(false, fmt.Sprintf("%q is not an operator", validate.Clip(op)))
}

// value parses the value after = or !=. It may be empty.
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

// LabelWord reports whether s consists of characters allowed in keys and values.
func LabelWord(s string) bool {
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
