package daemon

import (
	"fmt"
	"maps"
	"slices"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/internal/models/record"
)

// recording are models whose calls are recorded.
type recording struct {
	adkbridge.Models
	to      *record.Recorder
	secrets []string // the server's keys
}

// Resolve implements adkbridge.Models.
func (r recording) Resolve(name string, keys map[string]string) (adkbridge.Model, error) {
	m, err := r.Models.Resolve(name, keys)
	if err != nil {
		return m, err
	}
	m.LLM = r.to.Wrap(m.LLM, record.Source{
		Provider: m.Provider, Model: name,
		Secrets: slices.AppendSeq(slices.Clone(r.secrets), maps.Values(keys)),
	})
	return m, nil
}

// openRecorder has the calls of models recorded, if the config says so.
func (d *Daemon) openRecorder(models adkbridge.Models) (adkbridge.Models, error) {
	if d.cfg.RecordTo == "" {
		return models, nil
	}
	rec, err := record.Open(d.cfg.RecordTo, d.log)
	if err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	d.recorder = rec
	return recording{models, rec, d.cfg.keys}, nil
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
