package faults

import (
	"testing"

	"github.com/apzuk3/agentd/internal/test/harness"
)

// scenarios are the tests that TestServices runs over both services.
var scenarios = map[string]harness.Scenario{
	"TestFaultChecker":                   {Run: TestFaultChecker},
	"TestFaultAnswerTwice":               {Run: TestFaultAnswerTwice},
	"TestFaultAnswersAtOnce":             {Run: TestFaultAnswersAtOnce, Differ: harness.ByTime},
	"TestFaultTwoClients":                {Run: TestFaultTwoClients},
	"TestFaultAnswerTooLate":             {Run: TestFaultAnswerTooLate, Differ: harness.ByTime},
	"TestFaultForeignAnswer":             {Run: TestFaultForeignAnswer},
	"TestFaultToolNeverAnswers":          {Run: TestFaultToolNeverAnswers},
	"TestFaultNobodyAnswers":             {Run: TestFaultNobodyAnswers, Slow: true},
	"TestFaultCancelAtEveryMessage":      {Run: TestFaultCancelAtEveryMessage, Differ: harness.ByTime, Slow: true},
	"TestFaultContextCancelled":          {Run: TestFaultContextCancelled, Differ: harness.ByTime},
	"TestFaultDropAtEveryMessage":        {Run: TestFaultDropAtEveryMessage, Places: true, Slow: true},
	"TestFaultAttachAtEveryMessage":      {Run: TestFaultAttachAtEveryMessage, Slow: true},
	"TestFaultGoClientDropsAtEveryEvent": {Run: TestFaultGoClientDropsAtEveryEvent, Places: true, Slow: true},
	"TestFaultCutAtEveryByte":            {Run: TestFaultCutAtEveryByte, Differ: harness.ByTime, Slow: true},
}

// runOnly are the tests that TestServices does not run, and why.
var runOnly = map[string]string{
	"TestFaultDocs":                 "about a page",
	"TestFaultHalfOpen":             "about the HTTP/2 pings of the connection that Run takes, under a daemon of its own",
	"TestFaultClientThatNeverReads": "about the flow control of Run's own stream; that of WatchTurn is tested by package daemon",
	"TestFaultFlood":                "about how fast messages are taken from Run's own stream",
	"TestFaultTooLarge":             "about the size of Run's own messages; that of SessionService's requests is tested by package daemon",
}

func TestScenarios(t *testing.T) { harness.CheckScenarios(t, scenarios, runOnly) }

func TestServices(t *testing.T) { harness.RunScenarios(t, scenarios, faultParts) }
