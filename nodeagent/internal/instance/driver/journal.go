package driver

import "time"

// journalRetryPause is the pause before a failed journal write is retried.
const journalRetryPause = time.Second

// writeJournal journals the entry. It retries failures, because a later agent would act on the
// outdated entry.
func (i *Instance) writeJournal() {
	if i.entry.Machine.Placement.Instance == "" || i.done {
		i.journalRetry, i.journalErr = nil, nil
		return
	}
	err := i.deps.Journal.Write(i.entry)
	switch {
	case err == nil && i.journalRetry != nil:
		i.log.Info("the journal is up to date again")
	case err != nil && i.journalRetry == nil:
		i.log.Error("cannot write the journal, retrying: if the agent is killed now, this instance may be lost or started again", "error", err)
	}
	i.journalRetry, i.journalErr = nil, err
	if err != nil {
		i.journalRetry = time.After(journalRetryPause)
	}
}
