package account

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// ShareKind says what a shared text contains.
type ShareKind string

// The kinds of shares.
const (
	ShareCrash       ShareKind = "CRASH"
	ShareGatewayLogs ShareKind = "CONTROLLER_LOGS"
	ShareNodeLogs    ShareKind = "DAEMON_LOGS"
	ShareDiagnostics ShareKind = "DIAGNOSTICS"
	ShareConsole     ShareKind = "INSTANCE_CONSOLE"
)

// ShareKinds lists every kind.
var ShareKinds = [...]ShareKind{ShareCrash, ShareGatewayLogs, ShareNodeLogs, ShareDiagnostics, ShareConsole}

// Limits of a shared text.
const (
	// MaxShareText bounds the text in bytes. Only the end of a longer text is kept.
	MaxShareText = 4 << 20
	// MaxShareStored bounds the compressed text in bytes, because one transaction writes it
	// together with its record.
	MaxShareStored = 640 << 10
)

// Share is a text that everyone with its link can read. The text is a separate record, written in
// the same transaction and deleted when the share ends. The gateway writes it.
type Share struct {
	record.Rev
	// ID is the secret part of the link.
	ID   string    `json:"id"`
	Kind ShareKind `json:"kind"`
	// Resource names the object of the text. It is empty if there is only one of its kind.
	Resource string `json:"resource,omitempty"`
	// Group is the group of an instance's console or crash. It is empty for other kinds and in records
	// of earlier versions.
	Group fleet.GroupName `json:"group,omitempty"`
	// Private texts can be read only by users who may share such texts.
	Private bool `json:"private,omitempty"`
	// HasLogs is true if a text that is not itself a log contains log records. Users who may not
	// see logs may not read it.
	HasLogs bool `json:"hasLogs,omitempty"`
	// Burn is true if the text can be read only once.
	Burn bool `json:"burn,omitempty"`
	// SizeBytes is the length of the text, StoredBytes the size of its record.
	SizeBytes   int `json:"sizeBytes"`
	StoredBytes int `json:"storedBytes"`
	// Truncated is true if only the end of the text was kept.
	Truncated bool      `json:"truncated,omitempty"`
	By        string    `json:"by"`
	At        time.Time `json:"at"`
	// ExpiresAt is zero if the share does not expire.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// DeleteHash is the SHA-256 of the token that deletes the share, in hex.
	DeleteHash string `json:"deleteHash"`
	// RevokedAt is when a user ended the share, BurnedAt when a Burn share was read. Zero if not.
	RevokedAt time.Time `json:"revokedAt,omitzero"`
	BurnedAt  time.Time `json:"burnedAt,omitzero"`
}

// Active reports whether the text can still be read.
func (s *Share) Active(now time.Time) bool {
	return s.RevokedAt.IsZero() && s.BurnedAt.IsZero() && (s.ExpiresAt.IsZero() || now.Before(s.ExpiresAt))
}

// EndedAt returns when the share ended or will expire. Zero means never.
func (s *Share) EndedAt() time.Time {
	switch {
	case !s.RevokedAt.IsZero():
		return s.RevokedAt
	case !s.BurnedAt.IsZero():
		return s.BurnedAt
	}
	return s.ExpiresAt
}

// ShareText is the text of a Share. It never changes.
type ShareText struct {
	record.Rev
	ID string `json:"id"`
	// Text is compressed with gzip.
	Text []byte `json:"text"`
}

// ShareTextMark decodes only the revision of a ShareText, so that damaged texts can be deleted
// too.
type ShareTextMark struct{ record.Rev }

// Blank replaces a record that cannot be decoded.
func (m *ShareTextMark) Blank() { *m = ShareTextMark{} }

// NewShareText compresses a text. If it is too large, it keeps the last lines. kept is the length
// of the kept text.
func NewShareText(id, text string) (out ShareText, kept int) {
	for {
		text = lastBytes(text, MaxShareText)
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed) // writing to a buffer cannot fail
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		if packed.Len() <= MaxShareStored {
			return ShareText{ID: id, Text: packed.Bytes()}, len(text)
		}
		text = lastBytes(text, len(text)/2)
	}
}

// lastBytes returns at most the last most bytes of a text, from the start of a line if possible.
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

// Read returns the text. The error is Internal if the record is damaged.
func (t *ShareText) Read() (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(t.Text))
	if err != nil {
		return "", errs.WrapAs(errs.Internal, "fleet.ShareText", err)
	}
	b, err := io.ReadAll(io.LimitReader(r, MaxShareText))
	return string(b), errs.WrapAs(errs.Internal, "fleet.ShareText", err)
}
