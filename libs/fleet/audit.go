package fleet

import (
	"encoding/json"
	"time"
)

// AuditEntry is the record of one mutation, or of a command that was sent to an instance. It
// is written in the transaction of what it tells of, so that its revision is that one's. The
// gateway writes it.
type AuditEntry struct {
	Rev
	AuditMark
	// Details are a sentence for people, or the command; may be empty.
	Details string `json:"details,omitempty"`
	// Failure is why a command may not have come to its instance; empty when it did.
	Failure string `json:"failure,omitempty"`
	// Before and After are JSON objects, as far as the change is of one that can be shown;
	// empty for what was made, and for what is gone.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Role is the user's then, TokenID the API token it was done with; empty for others.
	Role      string `json:"role,omitempty"`
	TokenID   string `json:"tokenId,omitempty"`
	IPAddress string `json:"ipAddress,omitempty"`
	// RequestID is the request's, as it stands in the log; empty for what no request asked for.
	RequestID string `json:"requestId,omitempty"`
}

// AuditMark is what an entry of the audit is found by.
type AuditMark struct {
	ID           string `json:"id"` // a ULID
	Username     string `json:"username"`
	Action       string `json:"action"`
	ResourceType string `json:"resourceType"`
	ResourceID   string `json:"resourceId"`
	// Objects are the objects in whose history the entry is, each as <kind>/<name>; empty for
	// the resource alone.
	Objects   []string  `json:"objects,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}

// Concerns are the objects in whose history the entry is, each as <kind>/<name>.
func (m *AuditMark) Concerns() []string {
	if len(m.Objects) > 0 {
		return m.Objects
	}
	return []string{m.ResourceType + "/" + m.ResourceID}
}

// AuditSlip is what of an entry is kept in memory.
type AuditSlip struct {
	Rev
	AuditMark
	// Bytes is the size of the entry.
	Bytes int `json:"-"`
}

// UnmarshalJSON reads an entry, and notes how large it is.
func (s *AuditSlip) UnmarshalJSON(b []byte) error {
	err := json.Unmarshal(b, &s.AuditMark)
	s.Bytes = len(b)
	return err
}
