package fleet

import (
	"encoding/json"
	"strings"
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
	// Failure is why a login was refused, or why a command may not have come to its instance;
	// empty for what was done.
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

// Result is SUCCESS, or FAILED where Failure says why.
func (e *AuditEntry) Result() string {
	if e.Failure != "" {
		return "FAILED"
	}
	return "SUCCESS"
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

// AuditClass says who causes an entry. Each class is kept within bounds of its own, so that
// nobody can push out entries of another one.
type AuditClass int

// The classes.
const (
	// AuditChange has what users, their API tokens and sources changed and commanded.
	AuditChange AuditClass = iota
	// AuditAccess has who read consoles and files.
	AuditAccess
	// AuditLogin has what proven users did with their logins, and tokens used from a new address.
	AuditLogin
	// AuditUnproven has what anybody can cause without a login: wrong passwords, lockouts, and
	// requests to reset a password.
	AuditUnproven
	// AuditWorkload has what instances did with their own tokens.
	AuditWorkload
	// AuditClasses is the number of classes.
	AuditClasses
)

// String is the class as the API shows it.
func (c AuditClass) String() string {
	names := [AuditClasses]string{"CHANGE", "ACCESS", "LOGIN", "UNPROVEN", "WORKLOAD"}
	if c < 0 || c >= AuditClasses {
		return ""
	}
	return names[c]
}

// InstanceActor is the name under which an instance acts.
func InstanceActor(id InstanceID) string { return instanceActor + string(id) }

// instanceActor begins the name under which an instance acts; no user's name has a space.
const instanceActor = "instance "

// Actions of entries that are no AuditChange.
const (
	ActionConsoleRead   = "console.read"
	ActionFileRead      = "file.read"
	ActionLogin         = "auth.login"
	ActionLogout        = "auth.logout"
	ActionNewAddress    = "auth.new-address"
	ActionRefreshReused = "auth.refresh-reused"
	ActionLoginFailed   = "auth.login-failed"
	ActionLockout       = "auth.lockout"
	ActionResetRequest  = "auth.password-reset.request"
)

// Class is the entry's. It follows from the mark, so that entries of earlier versions have one.
func (m *AuditMark) Class() AuditClass {
	if strings.HasPrefix(m.Username, instanceActor) {
		return AuditWorkload
	}
	switch m.Action {
	case ActionConsoleRead, ActionFileRead:
		return AuditAccess
	case ActionLogin, ActionLogout, ActionNewAddress, ActionRefreshReused:
		return AuditLogin
	case ActionLoginFailed, ActionLockout, ActionResetRequest:
		return AuditUnproven
	}
	return AuditChange
}

// AuditTotal is how many entries there are of a class, and their size together.
type AuditTotal struct{ Entries, Bytes int }

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
