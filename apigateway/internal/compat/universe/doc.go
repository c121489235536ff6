// Package universe serves the Universe API, the paths without a version under /api: configurations,
// instances, cluster nodes, templates and the gateway's own node. Packages command and commandapi
// serve its commands.
//
// It is a second view of the same fleet: a configuration is a group. Guarantees:
//
//   - Every response has every field of the dialect. Missing values are null, [] or {}, and integers
//     are numbers.
//   - Writes lose nothing: group fields unknown to the dialect keep their values, and unknown
//     request fields are listed in a Warning.
//   - Errors are {"error": "…"} and name the dialect's own fields.
//   - Stopping a stopped instance succeeds and changes nothing. A late heartbeat revives nothing.
//
// Former routes of the dialect that this package does not serve are 404.
package universe
