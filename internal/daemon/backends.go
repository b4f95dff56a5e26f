package daemon

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/backendfile"
	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/internal/remote/agentcore"
	remoteagentd "github.com/apzuk3/agentd/internal/remote/agentd"
	"github.com/apzuk3/agentd/internal/remote/managed"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/record"
)

// backends are the drivers of the servers that may run agents, by the operator's names.
type backends map[string]remote.Driver

// driver returns the driver of a backend. The error is for clients.
func (b backends) driver(name string) (remote.Driver, error) {
	if d := b[name]; d != nil {
		return d, nil
	}
	if len(b) == 0 {
		return nil, errors.New("this server has no backends: its operator names them in a file (--backends)")
	}
	return nil, fmt.Errorf("there is no such backend; there are %s", strings.Join(slices.Sorted(maps.Keys(b)), ", "))
}

// backend returns the driver of a backend as the files say now.
func (d *Daemon) backend(name string) (remote.Driver, error) { return d.live.Load().driver(name) }

// readBackends reads what the config's file says of backends.
func readBackends(cfg *Config) (backends, error) {
	found, err := parseBackends(cfg)
	if err != nil {
		return nil, fmt.Errorf("daemon: backends: %w", err)
	}
	out := backends{}
	for name, b := range found {
		if out[name], err = driverOf(cfg, b); err != nil {
			return nil, fmt.Errorf("daemon: backends: %s: %s: %w", cfg.Backends, name, err)
		}
	}
	return out, nil
}

// parseBackends reads the file of backends, if there is one.
func parseBackends(cfg *Config) (map[string]backendfile.Backend, error) {
	if cfg.Backends == "" {
		return nil, nil
	}
	data, err := readFile(cfg.Backends, backendfile.MaxBytes)
	if err != nil {
		return nil, err
	}
	return backendfile.Parse(cfg.Backends, data, cfg.getenv)
}

// driverOf makes the driver of a backend.
func driverOf(cfg *Config, b backendfile.Backend) (remote.Driver, error) {
	switch b.Kind {
	case backendfile.Managed:
		return managed.New(b.URL, b.Key, nil), nil
	case backendfile.Agentd:
		return remoteagentd.New(b.URL, b.Key, nil), nil
	}
	var keys agentcore.Keys
	if b.Key != "" {
		var err error
		if keys, err = agentcore.ParseKeys(b.Key); err != nil {
			return nil, fmt.Errorf("key_env: %w", err)
		}
	} else {
		keys = agentcore.Keys{
			ID: cfg.getenv("AWS_ACCESS_KEY_ID"), Secret: cfg.getenv("AWS_SECRET_ACCESS_KEY"),
			Token: cfg.getenv("AWS_SESSION_TOKEN"),
		}
	}
	if keys.ID == "" || keys.Secret == "" {
		return nil, errors.New("there is no key: name a variable with key_env, " +
			"or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	return agentcore.New(b.ARN, b.URL, keys, nil)
}

// priceOf returns what a call of a model of a backend costs a tenant, nil where the price is not known: models have the
// prices that they have at their makers.
func (d *Daemon) priceOf(tenant, name string) func(model.Usage) record.NanoUSD {
	reg := d.live.Load().modelsOf(tenant).registry
	provider, id, err := reg.Route(name)
	if err != nil {
		return nil
	}
	known := reg.Knows(provider, id)
	if _, ok := known.Cost(model.Usage{}); !ok {
		return nil
	}
	return func(u model.Usage) record.NanoUSD {
		nanos, _ := known.Cost(u)
		return record.NanoUSD(nanos)
	}
}
