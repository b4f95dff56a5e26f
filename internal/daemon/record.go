package daemon

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/internal/models/record"
)

// resolver finds models by name; see adkbridge.Config.
type resolver = func(name string, keys map[string]string) (adkbridge.Model, error)

// ConvertedRecording is what ConvertRecording has done.
type ConvertedRecording = record.Converted

// ConvertRecording writes recorded model calls of one form in the other one: those of RecordTo in that of programs on
// Google's ADK, and those in that of RecordTo.
func ConvertRecording(from io.Reader, to io.Writer) (ConvertedRecording, error) {
	return record.Convert(from, to)
}

// openRecorder opens the record of model calls, if the config says so.
func (d *Daemon) openRecorder() error {
	if d.cfg.RecordTo == "" {
		return nil
	}
	rec, err := record.Open(d.cfg.RecordTo, d.log)
	if err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	d.recorder = rec
	return nil
}

// recorded has the calls of models recorded, if there is a record. secrets are the keys of the server.
func (d *Daemon) recorded(resolve resolver, secrets []string) resolver {
	return func(name string, keys map[string]string) (adkbridge.Model, error) {
		m, err := resolve(name, keys)
		if err != nil || d.recorder == nil {
			return m, err
		}
		m.LLM = d.recorder.Wrap(m.LLM, record.Source{
			Provider: m.Provider, Model: name,
			Secrets: slices.AppendSeq(slices.Clone(secrets), maps.Values(keys)),
		})
		return m, nil
	}
}

// closeRecorder ends the recording, if there is one.
func (d *Daemon) closeRecorder() error {
	if d.recorder == nil {
		return nil
	}
	if err := d.recorder.Close(); err != nil {
		return fmt.Errorf("daemon: close the record of model calls: %w", err)
	}
	return nil
}
