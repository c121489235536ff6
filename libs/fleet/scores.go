package fleet

import (
	"bytes"
	"encoding/json"
)

// Scores are the parts of a score by name, as the text of the JSON object they are
// stored as: they are written with every placement and read by every view, and hardly
// anybody asks for them. Empty is none.
type Scores string

// Parts are the parts by name; nil when there are none.
func (s Scores) Parts() map[string]float64 {
	var parts map[string]float64
	if json.Unmarshal([]byte(s), &parts) != nil {
		return nil
	}
	return parts
}

// MarshalJSON writes the object.
func (s Scores) MarshalJSON() ([]byte, error) {
	if s == "" {
		return []byte("null"), nil
	}
	return []byte(s), nil
}

// UnmarshalJSON takes an object of numbers.
func (s *Scores) UnmarshalJSON(b []byte) error {
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
	*s = Scores(text.String())
	return nil
}
