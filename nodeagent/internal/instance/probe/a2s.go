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
	a2sOldInfo   = 'm' // of servers older than Source
	a2sChallenge = 'A'
	// a2sRounds bounds how often a server may request another challenge.
	a2sRounds = 3
)

// askA2S sends the query A2S_INFO and repeats it with the challenge that a server may request
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
		return Answer{}, wrongAnswer(address, "does not answer as Valve's server query does")
	}
	return Answer{}, wrongAnswer(address, "answers every query with another challenge")
}

// readInfo parses both forms of an A2S_INFO answer.
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
	return Answer{Players: int(b[fixed]), MaxPlayers: int(b[fixed+1]), PlayersKnown: true}, true
}
