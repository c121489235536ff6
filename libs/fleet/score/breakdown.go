package score

import (
	"bytes"
	"encoding/json"
)

// Breakdown contains the parts of a score by name as JSON text. It is kept as text because every
// placement writes it and every view reads it, but few callers look inside. Empty means no scores.
type Breakdown string

// Parts returns the parts by name, nil without scores.
func (s Breakdown) Parts() map[string]float64 {
	var parts map[string]float64
	if json.Unmarshal([]byte(s), &parts) != nil {
		return nil
	}
	return parts
}

// MarshalJSON returns the text itself.
func (s Breakdown) MarshalJSON() ([]byte, error) {
	if s == "" {
		return []byte("null"), nil
	}
	return []byte(s), nil
}

// UnmarshalJSON accepts an object of numbers.
func (s *Breakdown) UnmarshalJSON(b []byte) error {
	var parts map[string]float64
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	if parts == nil {
		*s = ""
		return nil
	}
	var text bytes.Buffer
	if err := json.Compact(&text, b); err != nil {
		return err
	}
	*s = Breakdown(text.String())
	return nil
}
