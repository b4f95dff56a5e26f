package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/apzuk3/agentd/bench/internal/peer"
	"github.com/apzuk3/agentd/bench/internal/proc"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// kind is what a server is. Its text is the head of its column.
type kind string

const (
	floor      kind = "floor"
	adk        kind = "ADK REST"
	disk       kind = "agentd, disk"
	memory     kind = "agentd, memory"
	baseDisk   kind = "base, disk"
	baseMemory kind = "base, memory"
)

// proxyUser is the header in which the callers of a server in memory say who they are: such a server has no API keys.
const proxyUser = "X-Forwarded-User"

// target is a server that runs.
type target struct {
	*proc.Process
	kind   kind
	server peer.Server
	turns  *peer.Turns                     // of agentd
	dir    string                          // of its data; "" is none
	again  func(ctx context.Context) error // starts an agentd on its data
}

// start starts a server of a kind.
func (b *bench) start(ctx context.Context, k kind, wire providertest.Wire) (*target, error) {
	t := &target{kind: k}
	var err error
	switch k {
	case floor:
		if t.Process, err = proc.Start(ctx, b.core, nil, b.bin("floor"), b.model.URL); err == nil {
			t.server = peer.NewFloor(t.URL)
		}
	case adk:
		if t.Process, err = proc.Start(ctx, b.core, nil, b.bin("adkpeer"), b.model.URL); err == nil {
			t.server = peer.NewADK(t.URL)
		}
	case disk, memory:
		err = b.startAgentd(ctx, t, b.agentd, wire)
	case baseDisk, baseMemory:
		err = b.startAgentd(ctx, t, b.base, wire)
	}
	return t, err
}

func (b *bench) bin(name string) string { return b.bins + string(filepath.Separator) + name }

// startAgentd starts an agentd that knows its callers, counts, and keeps an audit trail, but exports no traces.
func (b *bench) startAgentd(ctx context.Context, t *target, binary string, wire providertest.Wire) error {
	args := []string{binary, "serve", "--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-format", "json",
		"--messages-per-second", "1000000", "--max-turns", "20000", "--max-streams", "20000"}
	header := http.Header{}
	if t.kind == disk || t.kind == baseDisk {
		var err error
		if t.dir, err = os.MkdirTemp(b.dir, "agentd-bench-"); err != nil {
			return err
		}
		create := exec.CommandContext(ctx, //nolint:gosec // the binary that is measured
			binary, "keys", "create", "bench", "--role", "operator", "--data", t.dir)
		key, err := create.Output()
		if err != nil {
			return fmt.Errorf("make an API key: %w", err)
		}
		header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))
		args = append(args, "--data", t.dir)
	} else {
		header.Set(proxyUser, "bench")
		args = append(args, "--data", ":memory:", "--trusted-proxies", "127.0.0.1/32", "--proxy-user-header", proxyUser)
	}
	var env []string
	for name, value := range peer.Environment(b.model.URL) {
		env = append(env, name+"="+value)
	}
	t.again = func(ctx context.Context) error {
		var err error
		if t.Process, err = proc.Start(ctx, b.core, env, args...); err == nil {
			t.connect(b.api, peer.Models[wire], header)
		}
		return err
	}
	return t.again(ctx)
}

// connect makes the clients of an agentd.
func (t *target) connect(api, model string, header http.Header) {
	t.server = peer.NewAgentd(t.URL, model, header)
	if api == "sessions" {
		t.server = peer.NewSessions(t.URL, model, header)
	}
	t.turns = peer.NewTurns(t.URL, header, api == "sessions")
}

// restart stops an agentd and starts it again on its data.
func (t *target) restart(ctx context.Context) error {
	if err := t.Stop(); err != nil {
		t.Process = nil
		return err
	}
	return t.again(ctx)
}

// stop ends the server and removes its data.
func (t *target) stop() error {
	var err error
	if t.Process != nil {
		err = t.Stop()
	}
	if t.dir != "" {
		if removed := os.RemoveAll(t.dir); err == nil {
			err = removed
		}
	}
	return err
}
