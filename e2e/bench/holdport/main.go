// Command holdport is a server that keeps every connection open, as a game server does.
// e2e/bench kills it to measure when its port can be used again.
//
//	holdport [-network udp] [-reuse=false]
//
// It listens on the port in ORRERY_PORT. With -reuse=false it does not set SO_REUSEADDR.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, stderr io.Writer) int {
	fs := flag.NewFlagSet("holdport", flag.ContinueOnError)
	fs.SetOutput(stderr)
	network := fs.String("network", "tcp", "tcp or udp")
	reuse := fs.Bool("reuse", true, "set SO_REUSEADDR, as Go does by itself")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	fmt.Fprintln(stderr, "holdport:", serve(*network, ":"+os.Getenv("ORRERY_PORT"), *reuse))
	return 1
}

// serve serves until it fails.
func serve(network, address string, reuse bool) error {
	if network == "udp" {
		c, err := net.ListenPacket("udp", address)
		if err != nil {
			return err
		}
		for {
			if _, _, err := c.ReadFrom(make([]byte, 1500)); err != nil {
				return err
			}
		}
	}
	config := net.ListenConfig{}
	config.SetMultipathTCP(false) // as servers in other languages do
	if !reuse {
		config.Control = func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0) })
		}
	}
	l, err := config.Listen(context.Background(), network, address)
	if err != nil {
		return err
	}
	var open []net.Conn
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		open = append(open, c)
		if _, err := c.Write([]byte("hello")); err != nil { // a client that receives it has been accepted
			open = open[:len(open)-1]
		}
	}
}
