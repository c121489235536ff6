package account

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// AuditEntry is the record of one mutation, or of a command sent to an instance. The gateway
// writes it in the same transaction as the change, so both have the same revision.
type AuditEntry struct {
	record.Rev
	AuditMark
	// Details is a sentence for people, or the command. It may be empty.
	Details string `json:"details,omitempty"`
	// Failure says why a login was refused, or why a command may not have reached its instance. It
	// is empty on success.
	Failure string `json:"failure,omitempty"`
	// Before and After are the changed object as JSON, as far as it can be shown. Before is empty
	// for a created object, After for a deleted one.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// Role is the user's role at that time. TokenID is the API token that was used, or empty.
	Role      string `json:"role,omitempty"`
	TokenID   string `json:"tokenId,omitempty"`
	IPAddress string `json:"ipAddress,omitempty"`
	// RequestID identifies the request in the log. It is empty if no request caused the entry.
	RequestID string `json:"requestId,omitempty"`
}

// Result is FAILED if Failure is set, otherwise SUCCESS.
func (e *AuditEntry) Result() string {
	if e.Failure != "" {
		return "FAILED"
	}
	return "SUCCESS"
}

// AuditMark holds the fields of an AuditEntry that queries filter by.
type AuditMark struct {
	ID           string `json:"id"` // a ULID
	Username     string `json:"username"`
	Action       string `json:"action"`
	ResourceType string `json:"resourceType"`
	ResourceID   string `json:"resourceId"`
	// Objects lists the objects whose history contains the entry, each as <kind>/<name>. Empty
	// means only the resource itself.
	Objects   []string  `json:"objects,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}

// Concerns returns the objects whose history contains the entry, each as <kind>/<name>.
func (m *AuditMark) Concerns() []string {
	if len(m.Objects) > 0 {
		return m.Objects
	}
	return []string{m.ResourceType + "/" + m.ResourceID}
}

// AuditClass says who causes an entry. Each class has its own size limit, so entries of one class
// cannot push out those of another.
type AuditClass int

// The classes.
const (
	// AuditChange is a change or command by a user, an API token or a source.
	AuditChange AuditClass = iota
	// AuditAccess is a read of a console or a file.
	AuditAccess
	// AuditLogin is what authenticated users do with their logins, and API tokens used from a new
	// address.
	AuditLogin
	// AuditUnproven is what anyone can cause without a login: wrong passwords, lockouts and
	// requests to reset a password.
	AuditUnproven
	// AuditWorkload is what instances do with their own tokens.
	AuditWorkload
	// AuditClasses is the number of classes.
	AuditClasses
)

// String returns the class as the API shows it.
func (c AuditClass) String() string {
	names := [AuditClasses]string{"CHANGE", "ACCESS", "LOGIN", "UNPROVEN", "WORKLOAD"}
	if c < 0 || c >= AuditClasses {
		return ""
	}
	return names[c]
}

// InstanceActor returns the audit user name of an instance.
func InstanceActor(id fleet.InstanceID) string { return instanceActor + string(id) }

// instanceActor is the prefix of an instance's audit name. User names cannot contain the space.
const instanceActor = "instance "

// The actions of entries that are not of class AuditChange.
const (
	ActionConsoleRead   = "console.read"
	ActionFileRead      = "file.read"
	ActionLogin         = "auth.login"
	ActionRecoveryCode  = "auth.recovery-code"
	ActionLogout        = "auth.logout"
	ActionNewAddress    = "auth.new-address"
	ActionRefreshReused = "auth.refresh-reused"
	ActionLoginFailed   = "auth.login-failed"
	ActionLockout       = "auth.lockout"
	ActionResetRequest  = "auth.password-reset.request"
)

// Class derives the class from the mark, so entries of earlier versions have one too.
func (m *AuditMark) Class() AuditClass {
	if strings.HasPrefix(m.Username, instanceActor) {
		return AuditWorkload
	}
	switch m.Action {
	case ActionConsoleRead, ActionFileRead:
		return AuditAccess
	case ActionLogin, ActionRecoveryCode, ActionLogout, ActionNewAddress, ActionRefreshReused:
		return AuditLogin
	case ActionLoginFailed, ActionLockout, ActionResetRequest:
		return AuditUnproven
	}
	return AuditChange
}

// AuditTotal is the number of entries of a class and their total size.
type AuditTotal struct{ Entries, Bytes int }

// AuditSlip is the part of an entry that is kept in memory.
type AuditSlip struct {
	record.Rev
	AuditMark
	// Bytes is the size of the entry.
	Bytes int `json:"-"`
}

// UnmarshalJSON decodes the entry's mark and records the entry's size.
func (s *AuditSlip) UnmarshalJSON(b []byte) error {
	err := json.Unmarshal(b, &s.AuditMark)
	s.Bytes = len(b)
	return err
}
