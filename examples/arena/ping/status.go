package ping

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf16"
)

// Status is the status that a server sends to a server list.
type Status struct {
	Version     Version `json:"version"`
	Players     Players `json:"players"`
	Description Text    `json:"description"`
	// Latency is the time from ping to pong. Only Ping sets it.
	Latency time.Duration `json:"-"`
}

// Version is the game version a server speaks.
type Version struct {
	Name     string `json:"name"`
	Protocol int32  `json:"protocol"`
}

// Players counts the players of a server. Sample names some of the online players.
type Players struct {
	Max    int      `json:"max"`
	Online int      `json:"online"`
	Sample []Player `json:"sample,omitempty"`
}

// Player is a player's name and UUID.
type Player struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

// Text is a chat text without styles. It is written as {"text":"…"} and read from that form
// or from a bare string. Texts in "extra" are appended to it.
type Text string

// MarshalJSON writes the object form.
func (t Text) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Text string `json:"text"`
	}{string(t)})
}

// UnmarshalJSON reads both forms.
func (t *Text) UnmarshalJSON(data []byte) error {
	var bare string
	if json.Unmarshal(data, &bare) == nil {
		*t = Text(bare)
		return nil
	}
	var object struct {
		Text  string `json:"text"`
		Extra []Text `json:"extra"`
	}
	if err := json.Unmarshal(data, &object); err != nil {
		return err
	}
	joined := object.Text
	for _, e := range object.Extra {
		joined += string(e)
	}
	*t = Text(joined)
	return nil
}

// AppendStatus appends the response packet that carries s.
func AppendStatus(dst []byte, s Status) ([]byte, error) {
	doc, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	return AppendPacket(dst, IDStatus, AppendString(nil, string(doc))), nil
}

// ParseStatus reads the body of a status response. Any error is ErrMalformed.
func ParseStatus(body []byte) (Status, error) {
	f := fields{rest: body}
	doc := f.string(maxStringLen)
	if err := f.end(); err != nil {
		return Status{}, fmt.Errorf("status: %w", err)
	}
	var s Status
	if err := json.Unmarshal([]byte(doc), &s); err != nil {
		return Status{}, fmt.Errorf("status: %w: %w", ErrMalformed, err)
	}
	return s, nil
}

// LegacyByte is the first byte of a ping by a client older than 1.7. No current packet of
// that length starts with it.
const LegacyByte = 0xFE

// AppendLegacy appends the answer to a legacy ping: a kick packet whose message contains
// the status. versioned means that the client sent a second byte (1.4 and later) and
// understands version and protocol. Older clients understand only message and counts.
func AppendLegacy(dst []byte, s Status, versioned bool) []byte {
	counts := []string{fmt.Sprint(s.Players.Online), fmt.Sprint(s.Players.Max)}
	motd := legacyField(string(s.Description))
	var message string
	if versioned {
		message = strings.Join(append([]string{"§1", fmt.Sprint(s.Version.Protocol), legacyField(s.Version.Name), motd}, counts...), "\x00")
	} else {
		message = strings.Join(append([]string{motd}, counts...), "§")
	}
	units := utf16.Encode([]rune(message))
	dst = append(dst, 0xFF)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(units)))
	for _, u := range units {
		dst = binary.BigEndian.AppendUint16(dst, u)
	}
	return dst
}

// maxLegacyField limits a text in a legacy answer, in characters.
const maxLegacyField = 128

// legacyField removes the field separators: the section sign and NUL.
func legacyField(s string) string {
	runes := []rune(strings.NewReplacer("§", "", "\x00", "").Replace(s))
	return string(runes[:min(len(runes), maxLegacyField)])
}
