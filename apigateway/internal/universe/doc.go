// Package universe serves the older of the two foreign dialects, the API without
// a version under /api: configurations, instances, cluster nodes, templates, and what a
// gateway tells of itself. Its commands are in packages command and shell.
//
// It is a second view of the same fleet: a configuration is a group, an instance
// an instance. What it promises:
//
//   - Every field of the dialect is in every answer; absent things are null, [] or
//     {}, and integers are numbers.
//   - Writing through it loses nothing: fields of a group that the dialect does not
//     know keep their value, and unknown ones of a request are named in a Warning.
//   - Errors are {"error": "…"} and name the dialect's own fields.
//   - Stopping what has stopped succeeds and changes nothing; a late heartbeat
//     revives nothing.
//
// Routes that the dialect once had and this package does not serve do not exist
// here: they are 404 like any other unknown path.
package universe
