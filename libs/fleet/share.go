package fleet

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// ShareKind is what a shared text is of.
type ShareKind string

// The kinds of shares.
const (
	ShareCrash       ShareKind = "CRASH"
	ShareGatewayLogs ShareKind = "CONTROLLER_LOGS"
	ShareNodeLogs    ShareKind = "DAEMON_LOGS"
	ShareDiagnostics ShareKind = "DIAGNOSTICS"
	ShareConsole     ShareKind = "INSTANCE_CONSOLE"
)

// ShareKinds are all kinds.
var ShareKinds = [...]ShareKind{ShareCrash, ShareGatewayLogs, ShareNodeLogs, ShareDiagnostics, ShareConsole}

// Bounds of a shared text.
const (
	// MaxShareText bounds it, in bytes; of more the end is kept.
	MaxShareText = 4 << 20
	// MaxShareStored bounds what is stored of it, compressed, in bytes: with its record it is
	// written in one transaction.
	MaxShareStored = 640 << 10
)

// Share is a text that can be read by who knows its link. Its text has a record of its own,
// written in one transaction with it and gone as soon as the share has ended. The gateway
// writes it.
type Share struct {
	Rev
	// ID is the secret part of the link.
	ID   string    `json:"id"`
	Kind ShareKind `json:"kind"`
	// Resource names what the text is of; empty for what there is one of.
	Resource string `json:"resource,omitempty"`
	// Private texts are read only by users who may share what they are of.
	Private bool `json:"private,omitempty"`
	// HasLogs is true when a text of a kind that is no log has records of one: who may not see
	// logs may not see it either.
	HasLogs bool `json:"hasLogs,omitempty"`
	// Burn is true when the text can be read once.
	Burn bool `json:"burn,omitempty"`
	// SizeBytes is the text's length, StoredBytes what its record takes.
	SizeBytes   int `json:"sizeBytes"`
	StoredBytes int `json:"storedBytes"`
	// Truncated is true when only the end of the text was kept.
	Truncated bool      `json:"truncated,omitempty"`
	By        string    `json:"by"`
	At        time.Time `json:"at"`
	// ExpiresAt is zero for what never does.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// DeleteHash is the SHA-256 of the token that deletes it, hex.
	DeleteHash string `json:"deleteHash"`
	// RevokedAt is when somebody ended it, BurnedAt when it was read that could be once; zero
	// when nobody did.
	RevokedAt time.Time `json:"revokedAt,omitzero"`
	BurnedAt  time.Time `json:"burnedAt,omitzero"`
}

// Active reports whether the text can be read still.
func (s *Share) Active(now time.Time) bool {
	return s.RevokedAt.IsZero() && s.BurnedAt.IsZero() && (s.ExpiresAt.IsZero() || now.Before(s.ExpiresAt))
}

// EndedAt is when the share ended, or will by itself; zero for one that never does.
func (s *Share) EndedAt() time.Time {
	switch {
	case !s.RevokedAt.IsZero():
		return s.RevokedAt
	case !s.BurnedAt.IsZero():
		return s.BurnedAt
	}
	return s.ExpiresAt
}

// ShareText is the text of a Share. It is never changed.
type ShareText struct {
	Rev
	ID string `json:"id"`
	// Text is compressed by gzip.
	Text []byte `json:"text"`
}

// ShareTextMark is a ShareText of which only the revision counts: for whom the text is to go,
// also one that is damaged.
type ShareTextMark struct{ Rev }

// Blank is the record when what stands there cannot be read.
func (m *ShareTextMark) Blank() { *m = ShareTextMark{} }

// NewShareText keeps a text, or of one that is too large the last lines: kept is its length
// then, smaller than that of the text.
func NewShareText(id, text string) (out ShareText, kept int) {
	for {
		text = lastBytes(text, MaxShareText)
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed) // neither it nor the buffer ever fails
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		if packed.Len() <= MaxShareStored {
			return ShareText{ID: id, Text: packed.Bytes()}, len(text)
		}
		text = lastBytes(text, len(text)/2)
	}
}

// lastBytes is the end of a text of at most so many bytes: whole lines, where there are any.
func lastBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	text = text[len(text)-most:]
	if end := strings.IndexByte(text, '\n'); end >= 0 && end+1 < len(text) {
		text = text[end+1:]
	}
	return strings.ToValidUTF8(text, "")
}

// Read is the text. Internal when the record is damaged.
func (t *ShareText) Read() (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(t.Text))
	if err != nil {
		return "", errs.As(errs.Internal, "fleet.ShareText", err)
	}
	b, err := io.ReadAll(io.LimitReader(r, MaxShareText))
	return string(b), errs.As(errs.Internal, "fleet.ShareText", err)
}
