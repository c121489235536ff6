// Package confine keeps a command from what it has no business with: it runs as another
// user, gains no rights, has a /tmp of its own.
//
//	agent: Plan, Handed ──▶ the wrapper runs the program ──▶ Main: confines itself, becomes the command
//
// Invariants:
//
//   - The command's environment takes effect after the change of user: the dynamic linker
//     and shells run code that variables name, so Main itself runs without them.
//   - A command is confined in every way it is to be, or does not run: what this host
//     cannot do is refused by Plan, and what fails all the same ends Main.
//   - The process keeps its id and stays in its control groups.
//   - A private /tmp is the run's own directory, which counts as its disk and goes with it.
package confine
