package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/modelcall"
)

func TestModelBreakerFlags(t *testing.T) {
	for failures, want := range map[int]int{0: -1, 1: 1, 25: 25} {
		c := serveCmd{Data: daemon.Memory, ModelBreaker: failures, ModelCoolDown: 3 * time.Second}
		cfg, err := c.config(&process{stderr: io.Discard})
		if err != nil || cfg.ModelBreaker != (modelcall.BreakerConfig{Failures: want, CoolDown: 3 * time.Second}) {
			t.Errorf("--model-breaker=%d: %+v, %v", failures, cfg.ModelBreaker, err)
		}
	}
	var stderr bytes.Buffer
	code := run(nil, []string{"serve", "--model-breaker=-1", "--model-cool-down=0s"}, map[string]string{"AGENTD_DATA": daemon.Memory}, io.Discard, &stderr)
	if code != exitUsage || !strings.Contains(stderr.String(), "--model-breaker is -1") || !strings.Contains(stderr.String(), "--model-cool-down is 0s") {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}
