package output

import "strings"

// Style colours text for a terminal. The zero Style leaves it plain.
type Style struct{ Colour bool }

// The colours of a Style, as SGR parameters.
const (
	red, green, yellow, cyan, dim, bold = "31", "32", "33", "36", "2", "1"
)

func (s Style) wrap(parameter, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + parameter + "m" + text + "\x1b[0m"
}

// Bold, Dim, Red, Green, Yellow and Cyan return text in that style.
func (s Style) Bold(text string) string   { return s.wrap(bold, text) }
func (s Style) Dim(text string) string    { return s.wrap(dim, text) }
func (s Style) Red(text string) string    { return s.wrap(red, text) }
func (s Style) Green(text string) string  { return s.wrap(green, text) }
func (s Style) Yellow(text string) string { return s.wrap(yellow, text) }
func (s Style) Cyan(text string) string   { return s.wrap(cyan, text) }

// stateColours says how states of all kinds look.
var stateColours = map[string]string{
	"RUNNING": green, "ONLINE": green, "COMPLETED": green, "OK": green, "ACTIVE": green, "SUCCEEDED": green,
	"CRASHED": red, "FAILED": red, "OFFLINE": red, "LOST": red, "ERROR": red, "CRITICAL": red, "ROLLED_BACK": red,
	"PREPARING": yellow, "STARTING": yellow, "STOPPING": yellow, "DRAINING": yellow, "SCHEDULED": yellow,
	"CORDONED": yellow, "PAUSED": yellow, "WARNING": yellow, "IN_PROGRESS": cyan,
	"STOPPED": dim, "SLEEPING": dim, "CANCELLED": dim,
}

// State returns a state in its colour.
func (s Style) State(state string) string {
	word, _, _ := strings.Cut(state, " ")
	return s.wrap(stateColours[strings.ToUpper(word)], state)
}
