package daemon

import (
	"fmt"
	"maps"
	"slices"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/internal/models/record"
)

// resolver finds models by name; see adkbridge.Config.
type resolver = func(name string, keys map[string]string) (adkbridge.Model, error)

// openRecorder has the calls of models recorded, if the config says so.
func (d *Daemon) openRecorder(resolve resolver) (resolver, error) {
	if d.cfg.RecordTo == "" {
		return resolve, nil
	}
	rec, err := record.Open(d.cfg.RecordTo, d.log)
	if err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	d.recorder = rec
	return func(name string, keys map[string]string) (adkbridge.Model, error) {
		m, err := resolve(name, keys)
		if err != nil {
			return m, err
		}
		m.LLM = rec.Wrap(m.LLM, record.Source{
			Provider: m.Provider, Model: name,
			Secrets: slices.AppendSeq(slices.Clone(d.cfg.keys), maps.Values(keys)),
		})
		return m, nil
	}, nil
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
