// Package timetable decides what schedules and overlays do next. It is pure: it gets the records, a
// cron expression and the time, and returns the next record and when to decide again.
//
// A run has steps: the warnings in order of time, then the action. Before a gateway acts on an instance,
// it stores the target as BEGUN with itself as the holder. Only the gateway whose write succeeded acts.
// When the holder ends before it stored the outcome, another gateway continues:
//
//   - A command, or a start of new instances, is not repeated. Its target becomes UNKNOWN.
//   - Starting, stopping or restarting a known instance is repeated. The generation shows whether it took
//     place already.
//
// So each command is sent at most once for each due time.
//
// Due times come from the clocks of the gateways. A due time that was handled is never handled again,
// and a window of an overlay begins and ends once, so gateways with different clocks agree on what
// happened first.
package timetable
