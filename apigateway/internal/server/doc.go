// Package server is the HTTP frame of all requests in both dialects: request IDs, rate limits,
// authentication, permissions and error responses.
//
//	request → ids → access log, metrics → panic → CORS → identity → limits → permission → route
//
// Invariants:
//
//   - Every response carries X-Request-Id. Every error response has the format of its path's
//     dialect, including 401, 403, 404, 405, 408, 413, 415 and 429.
//   - A request above a limit is refused before its handler runs.
//   - A Route declares what it demands of its caller and which body it reads. A route without a
//     declaration is open to no caller.
//   - Permissions that a caller has in some groups only count on the routes that declare In or Among.
//   - There are no redirects: an unknown path is a 404.
package server
