// Package orrery is a client of Orrery's HTTP API, /api/v1.
//
// New returns a Client of one or more gateways. It has a method for every operation of the
// OpenAPI description, with the types of the description. Requests are retried when a gateway
// cannot be reached or asks for a pause, and requests that change something carry an idempotency key,
// so that a retry has no second effect.
//
//	client, err := orrery.New(orrery.Config{
//		Addresses:   []string{"http://127.0.0.1:8080"},
//		Credentials: orrery.StaticToken(os.Getenv("ORRERY_TOKEN")),
//	})
//	group, err := client.GetGroup(ctx, "lobby")
//
// Optional fields of requests are pointers, so that absent and zero differ: new("text") makes one.
// PATCH methods take a Patch, in which null has a meaning. A list method returns one Page; the method
// whose name begins with All iterates over all pages. A method whose name ends in DryRun changes
// nothing and returns what the other one would do. IfMatch with the ETag of an object that was read
// refuses a change if somebody else changed the object since.
//
// Errors of a gateway are *Error. Use errors.Is with ErrNotFound and the other sentinels to
// decide by their kind.
//
// Events, consoles and logs are streams that continue where they were after a connection was
// lost, at any gateway.
package orrery
