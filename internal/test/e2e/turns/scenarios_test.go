package turns

import (
	"testing"

	"github.com/apzuk3/agentd/internal/test/harness"
)

// scenarios are the tests that TestServices runs over both services.
var scenarios = map[string]harness.Scenario{
	"TestRules":                   {Run: TestRules},
	"TestWildWordsOfModels":       {Run: TestWildWordsOfModels, Slow: true},
	"TestTree":                    {Run: TestTree, Slow: true},
	"TestStress":                  {Run: TestStress, Differ: harness.ByTime, Slow: true},
	"TestModelMisbehaves":         {Run: TestModelMisbehaves, Slow: true},
	"TestAgentTools":              {Run: TestAgentTools, Differ: harness.ByTime},
	"TestLastChunksOfAFailedTurn": {Run: TestLastChunksOfAFailedTurn, Slow: true},
}

// runOnly are the tests that TestServices does not run, and why.
var runOnly = map[string]string{
	"TestGeneratedTurns":        "it drives both services itself",
	"TestWatchQueuedTurn":       "about WatchTurn alone",
	"TestWatchLeft":             "about WatchTurn alone",
	"TestSubmitAgain":           "about SubmitToolResults alone",
	"TestQuietWatch":            "about WatchTurn alone",
	"TestServeBackgroundAgents": "sessions of children are named after a session whose id is made anew",
	"TestBackgroundAgents":      "sessions of children are named after a session whose id is made anew",
}

func TestScenarios(t *testing.T) { harness.CheckScenarios(t, scenarios, runOnly) }

func TestServices(t *testing.T) { harness.RunScenarios(t, scenarios, parts) }
