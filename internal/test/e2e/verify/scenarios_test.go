package verify

import (
	"testing"

	"github.com/apzuk3/agentd/internal/test/harness"
)

// runOnly are the tests of this package: none is run over both services.
var runOnly = map[string]string{
	"TestVerifyFinds":    "about logs, not about how turns are carried",
	"TestVerifyKinds":    "about logs, not about how turns are carried",
	"TestVerifyPrefixes": "about logs, not about how turns are carried",
}

func TestScenarios(t *testing.T) { harness.CheckScenarios(t, nil, runOnly) }
