package events

// Tell hands an event to the clients of this log that keep up, as one that is live only.
func (l *Log) Tell(e Event) {
	e.At = Position{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.append([]Event{e})
}
