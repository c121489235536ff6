// Command arena is the arena server as a program of its own.
package main

import (
	"os"

	"github.com/orreryhq/orrery/examples/arena"
)

func main() { os.Exit(arena.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
