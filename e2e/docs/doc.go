// Package docs runs the command blocks of README.md and of the guides in docs.
// Each page is a test with a standalone Orrery of its own. These tests run when
// ORRERY_E2E is processes: `make e2e`. Another test follows the links between pages.
//
// The info string of a fenced block says what happens to it:
//
//	sh test            bash runs it; it must exit with 0
//	sh test retry      as sh test, repeated until it exits with 0 and its output matches
//	sh notest: reason  is not run
//	text output        what the block above prints; … stands for any text, and lines
//	                   of the real output may be missing here
//	go                 is compiled
//
// A command block with another info string, or with none, fails the test.
package docs
