package txn

// Actor is the caller of an operation, as the audit records it.
type Actor struct {
	// User is a user name, or "instance <id>" for an instance.
	User string
	// ID is fleet.User.ID, Role the user's role, TokenID the ID of the API token. Each may be empty.
	ID, Role, TokenID string
	// IP is the client's address, RequestID the ID of the request. Both may be empty.
	IP, RequestID string
}
