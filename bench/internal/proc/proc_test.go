package proc_test

import (
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/bench/internal/proc"
)

// A server's time, memory and address are known, and its end.
func TestProcess(t *testing.T) {
	script := `trap 'exit 0' TERM; echo '{"msg":"serving the operator","admin_addr":"a:1"}' >&2; echo '{"msg":"serving","addr":"a:2"}' >&2; ` +
		`i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; while :; do sleep 0.01; done`
	p, err := proc.Start(t.Context(), "", nil, "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	if p.URL != "http://a:2" || p.AdminURL != "http://a:1" || p.Started <= 0 {
		t.Errorf("%q, %q, %s", p.URL, p.AdminURL, p.Started)
	}
	before, err := p.CPU()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		after, err := p.CPU()
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%s, %v", after, err)
		}
		if after-before > 10*time.Millisecond {
			break
		}
	}
	if bytes, err := p.Resident(); err != nil || bytes < 100<<10 || bytes > 100<<20 {
		t.Errorf("%d bytes, %v", bytes, err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

// Why a server does not serve is in the error.
func TestStartFails(t *testing.T) {
	if _, err := proc.Start(t.Context(), "", nil, "sh", "-c", "echo no room >&2"); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("%v", err)
	}
}
