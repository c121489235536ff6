package probe

import (
	"bytes"
	"context"
)

var (
	a2sQuestion = []byte("\xff\xff\xff\xffTSource Engine Query\x00")
	a2sHeader   = []byte("\xff\xff\xff\xff")
)

const (
	a2sInfo      = 'I'
	a2sOldInfo   = 'm' // of servers before Source
	a2sChallenge = 'A'
	// a2sRounds is how often a server may ask for the question with another challenge.
	a2sRounds = 3
)

// askA2S makes the query A2S_INFO, again with the challenge that a server may ask for
// (https://developer.valvesoftware.com/wiki/Server_queries).
func askA2S(ctx context.Context, address string) (Answer, error) {
	conn, err := dial(ctx, "udp", address)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	question := a2sQuestion
	for range a2sRounds {
		packet, err := exchange(ctx, conn, address, question)
		if err != nil {
			return Answer{}, err
		}
		body, found := bytes.CutPrefix(packet, a2sHeader)
		if found && len(body) == 5 && body[0] == a2sChallenge {
			question = append(bytes.Clone(a2sQuestion), body[1:]...)
			continue
		}
		if answer, ok := readInfo(body); found && ok {
			return answer, nil
		}
		return Answer{}, odd(address, "does not answer as Valve's server query does")
	}
	return Answer{}, odd(address, "answers every question with another challenge")
}

// readInfo reads either form of A2S_INFO.
func readInfo(b []byte) (Answer, bool) {
	if len(b) < 2 {
		return Answer{}, false
	}
	kind, texts, fixed := b[0], 4, 0
	switch kind {
	case a2sInfo: // the protocol; name, map, folder and game; the application's id
		b, fixed = b[2:], 2
	case a2sOldInfo: // address, name, map, folder and game
		b, texts = b[1:], 5
	default:
		return Answer{}, false
	}
	for range texts {
		_, rest, found := bytes.Cut(b, []byte{0})
		if !found {
			return Answer{}, false
		}
		b = rest
	}
	if len(b) < fixed+2 {
		return Answer{}, false
	}
	return Answer{Players: int(b[fixed]), MaxPlayers: int(b[fixed+1]), Told: true}, true
}
