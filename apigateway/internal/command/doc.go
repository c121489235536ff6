// Package command is the interpreter of the older dialect's console: it reads command
// lines such as "instance stop lobby-1" and says in lines of text what came of them.
//
//	line ─▶ words, arguments ─▶ the table of commands ─▶ operate ─▶ lines
//
// Invariants:
//
//   - It speaks no HTTP. Who runs a command, and where the lines go, is a Session. Of package
//     universe it takes the dialect's words alone.
//   - What a command demands is looked up at each command, for the caller as it is then:
//     it is what the routes demand that do the same.
//   - Commands change the fleet through operate alone, so they are checked and audited as
//     everything else is. One that changed something is noted as it was typed, too.
//   - A command has ended when its lines have: nothing of it goes on behind them, but for
//     what the fleet does to get where it is asked to be.
//   - Who typed a command and goes ends it, but for the end of a whole cluster, half of which helps
//     nobody: that is carried through, whether anybody hears of it or not.
//   - Its output is bounded by MaxLines.
package command
