// Command raknet-ping asks a Bedrock server for its status and prints the answer.
//
//	raknet-ping [-timeout 5s] ADDR
//
// It sends unconnected pings until the server answers. UDP loses packets, and a starting
// server may not listen yet or may answer without data. The command prints the pong's data,
// one line of fields separated by semicolons. It exits with 0 after an answer, with 1 after
// a timeout and with 2 on wrong usage. It keeps no state.
//
// It is a separate module, because it needs an older version of go-raknet than the game
// server, and one module can use only one version.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sandertv/go-raknet"
)

const (
	// attempt limits one ping, and so the delay that a lost packet causes.
	attempt = 500 * time.Millisecond
	// pause is the time between attempts, because a closed port refuses at once.
	pause = 50 * time.Millisecond
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("raknet-ping", flag.ContinueOnError)
	flags.SetOutput(stderr)
	timeout := flags.Duration("timeout", 5*time.Second, "how long to go on asking")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() != 1 {
		fmt.Fprintln(stderr, "usage: raknet-ping [-timeout 5s] ADDR, for example 127.0.0.1:19132")
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	pong, err := ping(ctx, flags.Arg(0))
	if err != nil {
		fmt.Fprintf(stderr, "raknet-ping: no answer from %s within %s: %v\n", flags.Arg(0), *timeout, err)
		return 1
	}
	fmt.Fprintf(stdout, "%s\n", pong)
	return 0
}

// ping repeats pings until an answer arrives. When ctx ends, it returns the last attempt's
// error.
func ping(ctx context.Context, addr string) ([]byte, error) {
	for {
		once, cancel := context.WithTimeout(ctx, attempt)
		pong, err := raknet.PingContext(once, addr)
		cancel()
		if err == nil && len(pong) == 0 {
			err = errors.New("it answers, but has no status yet")
		}
		if err == nil {
			return pong, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}
