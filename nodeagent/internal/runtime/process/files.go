package process

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// readNumber reads a number from a complete line that the wrapper has written.
func readNumber(path string) (int, error) {
	number, _, err := readLines(path)
	return number, err
}

// readLines reads a number and the line below it, which may be missing.
func readLines(path string) (number int, below string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0, "", err
	}
	line, rest, ok := strings.Cut(string(b), "\n")
	if !ok {
		return 0, "", fmt.Errorf("%s: %w", path, io.ErrUnexpectedEOF)
	}
	below, _, _ = strings.Cut(rest, "\n")
	number, err = strconv.Atoi(line)
	return number, below, err
}
