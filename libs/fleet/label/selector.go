package label

import "strings"

// Selector is a list of expressions that labels must all satisfy. The empty one matches all labels.
// In JSON it is text in the syntax of ParseSelector.
type Selector struct{ exprs []LabelExpr }

// ParseSelector parses expressions that are separated by commas, such as "game=bedwars, !test". Empty
// text is the empty selector. The error is as for ParseLabelExpr.
func ParseSelector(text string) (s Selector, err error) {
	p := &labelParser{text: text}
	if p.space(); p.at == len(text) {
		return s, nil
	}
	for {
		e, ok := p.expr()
		if !ok {
			return Selector{}, p.mistake()
		}
		s.exprs = append(s.exprs, e)
		switch {
		case p.at == len(text):
			return s, nil
		case !p.expect(p.take(","), `"," is missing`):
			return Selector{}, p.mistake()
		}
	}
}

// Empty reports whether the selector has no expressions.
func (s Selector) Empty() bool { return len(s.exprs) == 0 }

// Matches reports whether labels satisfy all expressions.
func (s Selector) Matches(labels map[string]string) bool {
	for _, e := range s.exprs {
		if !e.Matches(labels) {
			return false
		}
	}
	return true
}

// String returns the selector in the syntax of ParseSelector.
func (s Selector) String() string {
	texts := make([]string, len(s.exprs))
	for n, e := range s.exprs {
		texts[n] = e.String()
	}
	return strings.Join(texts, ", ")
}

// MarshalText implements encoding.TextMarshaler.
func (s Selector) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Selector) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSelector(string(text))
	return err
}
