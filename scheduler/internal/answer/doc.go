// Package answer answers questions about placement from one moment of the fleet:
// why an instance is where it is or waits, and what would happen if.
//
// It asks the same code that decides, on a copy that is thrown away: what it says
// of an instance that waits is what the scheduler would write of it at that
// revision, and a simulated placement is the one that would follow if nothing else
// changed. It writes nothing and reads nothing but the moment.
//
// What follows a drained or a lost node beside placement (which instances are
// replaced at all) is the enforcer's to decide; the policies it goes by are
// fleet's, and what depends on its settings or on time is told as a note.
package answer
