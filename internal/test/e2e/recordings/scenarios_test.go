package recordings

import (
	"testing"

	"github.com/apzuk3/agentd/internal/test/harness"
)

// scenarios are the tests that TestServices runs over both services.
var scenarios = map[string]harness.Scenario{
	"TestRecordedFiles": {Run: TestRecordedFiles},
	"TestRecordings":    {Run: TestRecordings, Slow: true},
}

// runOnly are the tests that TestServices does not run, and why.
var runOnly = map[string]string{
	"TestTapes":                "about what models are asked and answer",
	"TestTapesOfFailures":      "about what models are asked and answer",
	"TestTapeDiffers":          "about what models are asked",
	"TestTapeOfFallback":       "about what models are asked and answer",
	"TestTapeOfParallelAgents": "about what models are asked and answer",
	"TestRecordingsCut":        "as TestRecordings, with answers that break as in TestProviderBreaks",
}

func TestScenarios(t *testing.T) { harness.CheckScenarios(t, scenarios, runOnly) }

func TestServices(t *testing.T) { harness.RunScenarios(t, scenarios, nil) }
