package vm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// Pause stops the guest's CPUs. Its clocks stop and it does not respond.
func (m *Machine) Pause() {
	m.t.Helper()
	m.monitor("stop", nil)
}

// Resume continues a paused guest.
func (m *Machine) Resume() {
	m.t.Helper()
	m.monitor("cont", nil)
}

// SlowDisk limits the guest's disk to a number of operations per second.
func (m *Machine) SlowDisk(operations int) {
	m.t.Helper()
	m.monitor("block_set_io_throttle", map[string]any{
		"device": diskID, "iops": operations, "iops_rd": 0, "iops_wr": 0, "bps": 0, "bps_rd": 0, "bps_wr": 0,
	})
}

// monitor sends a command to the emulator.
func (m *Machine) monitor(command string, arguments map[string]any) {
	m.t.Helper()
	if err := monitor(m.path("qmp"), command, arguments); err != nil {
		m.t.Fatalf("%s: %s: %v", m.o.Name, command, err)
	}
}

func monitor(socket, command string, arguments map[string]any) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerBound)); err != nil {
		return err
	}
	in := bufio.NewScanner(conn)
	out := json.NewEncoder(conn)
	if err := out.Encode(map[string]any{"execute": "qmp_capabilities"}); err != nil {
		return err
	}
	if err := answered(in); err != nil {
		return err
	}
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := out.Encode(request); err != nil {
		return err
	}
	return answered(in)
}

// answered reads until the answer to a command, and skips the greeting and events.
func answered(in *bufio.Scanner) error {
	for in.Scan() {
		var line struct {
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		switch err := json.Unmarshal(in.Bytes(), &line); {
		case err != nil:
			return err
		case line.Error != nil:
			return fmt.Errorf("%s", line.Error.Desc)
		case line.Return != nil:
			return nil
		}
	}
	return fmt.Errorf("the monitor does not answer: %w", in.Err())
}
