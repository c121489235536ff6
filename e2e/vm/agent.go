package vm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// agent is a client for QEMU's guest agent, which runs programs in the guest. It connects
// on first use and again after each failure.
type agent struct {
	socket string
	conn   net.Conn
	in     *bufio.Reader
	// syncs numbers the requests that flush old answers.
	syncs int64
}

// output is a program's output and exit status.
type output struct {
	stdout, stderr string
	code           int
}

func (a *agent) close() {
	if a.conn != nil {
		_ = a.conn.Close()
		a.conn = nil
	}
}

// answerBound limits the time of the agent's answer to one request.
const answerBound = time.Minute

// run runs a shell script and waits for its end.
func (a *agent) run(script string, bound time.Duration) (output, error) {
	var started struct{ PID int }
	err := a.call("guest-exec", map[string]any{
		"path": "/bin/sh", "arg": []string{"-c", script}, "capture-output": true,
		"env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"},
	}, &started)
	if err != nil {
		return output{}, err
	}
	for deadline := time.Now().Add(bound); time.Now().Before(deadline); <-time.After(100 * time.Millisecond) {
		var status struct {
			Exited           bool
			ExitCode, Signal int
			Out              []byte `json:"out-data"`
			Err              []byte `json:"err-data"`
		}
		if err := a.call("guest-exec-status", map[string]any{"pid": started.PID}, &status); err != nil {
			return output{}, err
		}
		if !status.Exited {
			continue
		}
		out := output{stdout: string(status.Out), stderr: string(status.Err), code: status.ExitCode}
		if status.Signal != 0 {
			return out, fmt.Errorf("ended by signal %d", status.Signal)
		}
		return out, nil
	}
	return output{}, fmt.Errorf("did not end within %v", bound)
}

// call sends a request and reads the answer.
func (a *agent) call(command string, arguments, into any) (err error) {
	if err := a.connect(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if err := a.send(nil, command, arguments); err != nil {
		return err
	}
	line, err := a.in.ReadBytes('\n')
	if err != nil {
		return err
	}
	return decode(line, into)
}

func (a *agent) send(prefix []byte, command string, arguments any) error {
	request, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if err != nil {
		return err
	}
	if err := a.conn.SetDeadline(time.Now().Add(answerBound)); err != nil {
		return err
	}
	_, err = a.conn.Write(append(append(prefix, request...), '\n'))
	return err
}

func decode(line []byte, into any) error {
	var answer struct {
		Return json.RawMessage
		Error  *struct{ Class, Desc string }
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return errors.New(answer.Error.Desc)
	}
	return json.Unmarshal(answer.Return, into)
}

// sentinel precedes a request that flushes the connection, so that the agent drops what it
// has read before. The answer to that request also begins with it.
const sentinel = 0xff

// connect connects if necessary, and skips answers to requests of an earlier connection.
func (a *agent) connect() error {
	if a.conn != nil {
		return nil
	}
	conn, err := net.Dial("unix", a.socket)
	if err != nil {
		return err
	}
	a.conn, a.in = conn, bufio.NewReader(conn)
	a.syncs++
	id := time.Now().UnixNano()>>20<<8 + a.syncs
	if err := a.send([]byte{sentinel}, "guest-sync-delimited", map[string]any{"id": id}); err != nil {
		a.close()
		return err
	}
	for {
		if _, err := a.in.ReadBytes(sentinel); err != nil {
			a.close()
			return fmt.Errorf("the guest's agent does not answer: %w", err)
		}
		line, err := a.in.ReadBytes('\n')
		if err != nil {
			a.close()
			return err
		}
		var got int64
		if decode(line, &got) == nil && got == id {
			return nil
		}
	}
}
