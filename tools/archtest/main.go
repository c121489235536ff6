// Command archtest checks the architecture of the repository: the allowed imports,
// the names and the size of packages, and rules that keep packages pure and tests
// reliable. It also checks that the tests that documents name exist.
//
// Every rule is one entry of the table in rules.go with the sentence that states
// it; a broken rule is reported as that sentence followed by the places that
// break it. Checks read syntax only: nothing is built or type-checked, files of
// every platform are seen, and folders that do not exist yet break no rule.
//
//	archtest [-root DIR]
//
// It exits 0 when every rule holds, 1 when one is broken, 2 when the tree cannot
// be read.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("archtest", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", ".", "the repository's root folder")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	tree, err := load(os.DirFS(*root))
	if err != nil {
		fmt.Fprintf(stderr, "archtest: %v\n", err)
		return 2
	}
	if len(tree.packages) == 0 {
		fmt.Fprintf(stderr, "archtest: no Go package under %s; give the repository's root with -root\n", *root)
		return 2
	}
	broken := check(tree, rules())
	report(stdout, broken)
	if len(broken) > 0 {
		return 1
	}
	fmt.Fprintf(stdout, "architecture: %d rules hold in %d packages of %d modules\n",
		len(rules()), len(tree.packages), len(tree.modules))
	return 0
}

// report prints each broken rule's sentence once, then its findings.
func report(w io.Writer, broken []breach) {
	for _, b := range broken {
		fmt.Fprintf(w, "%s: %s\n", b.rule.name, b.rule.sentence)
		for _, f := range b.findings {
			fmt.Fprintf(w, "    %s\n", f)
		}
	}
}
