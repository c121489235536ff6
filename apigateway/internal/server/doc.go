// Package server is the frame every request goes through, whatever its dialect:
// ids, limits, who asks, whether he may, and how a refusal looks.
//
//	request → ids → access log, metrics → panic → CORS → identity → limits → permission → route
//
// Invariants:
//
//   - Every answer carries X-Request-Id; every refusal is in the envelope of its
//     path's dialect, also 401, 403, 404, 405, 408, 413, 415 and 429.
//   - A limit that is exceeded stops the work: nothing behind it runs.
//   - A route says itself what it demands of its caller and what it reads (see Route); one
//     that says nothing is open to nobody.
//   - Nothing is redirected: what is not a route is a 404.
package server
