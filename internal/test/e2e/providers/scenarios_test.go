package providers

import (
	"testing"

	"github.com/apzuk3/agentd/internal/test/harness"
)

// scenarios are the tests that TestServices runs over both services.
var scenarios = map[string]harness.Scenario{
	"TestStructuredOutput":          {Run: TestStructuredOutput, Slow: true},
	"TestStructuredOutputBehindRun": {Run: TestStructuredOutputBehindRun},
	"TestStructuredWithoutNetwork":  {Run: TestStructuredWithoutNetwork},
	"TestOutputSchemaRefused":       {Run: TestOutputSchemaRefused},
	"TestBlocked":                   {Run: TestBlocked, Slow: true},
	"TestProviderSuspended":         {Run: TestProviderSuspended, Slow: true},
	"TestCompaction":                {Run: TestCompaction, Slow: true},
	"TestCompactionOfSearches":      {Run: TestCompactionOfSearches},
	"TestCallOutcomes":              {Run: TestCallOutcomes},
	"TestAbortedCallOutcome":        {Run: TestAbortedCallOutcome, Slow: true},
	"TestDeferredTools":             {Run: TestDeferredTools, Slow: true},
	"TestFoundTools":                {Run: TestFoundTools, Slow: true},
	"TestManyDeferredTools":         {Run: TestManyDeferredTools, Slow: true},
	"TestReferencesOfPrompts":       {Run: TestReferencesOfPrompts},
	"TestProviderFallback":          {Run: TestProviderFallback, Slow: true},
	"TestProviderFallbackFails":     {Run: TestProviderFallbackFails, Slow: true},
	"TestProviderAlive":             {Run: TestProviderAlive, Slow: true},
	"TestProviderNeverEnds":         {Run: TestProviderNeverEnds, Slow: true},
	"TestProviderNeverStops":        {Run: TestProviderNeverStops, Slow: true},
	"TestProviderTools":             {Run: TestProviderTools, Slow: true},
	"TestRawPayloads":               {Run: TestRawPayloads, Slow: true},
	"TestRawPayloadBounds":          {Run: TestRawPayloadBounds, Slow: true},
	"TestRawPayloadsInLog":          {Run: TestRawPayloadsInLog, Slow: true},
	"TestRetryUsage":                {Run: TestRetryUsage},
	"TestRetryWaits":                {Run: TestRetryWaits},
	"TestRetryRestart":              {Run: TestRetryRestart},
	"TestProviderFails":             {Run: TestProviderFails, Slow: true},
	"TestProviderRetryAfter":        {Run: TestProviderRetryAfter, Slow: true},
	"TestProviderUnreachable":       {Run: TestProviderUnreachable, Slow: true},
	"TestProviderRefuses":           {Run: TestProviderRefuses, Slow: true},
	"TestProviderBreaks":            {Run: TestProviderBreaks, Slow: true},
	"TestProviderStalls":            {Run: TestProviderStalls, Slow: true},
	"TestProviderEndlessLine":       {Run: TestProviderEndlessLine, Slow: true},
}

// runOnly are the tests that TestServices does not run, and why.
var runOnly = map[string]string{
	"TestProviderCut": "as TestProviderBreaks, at every place of an answer",
}

func TestScenarios(t *testing.T) { harness.CheckScenarios(t, scenarios, runOnly) }

func TestServices(t *testing.T) { harness.RunScenarios(t, scenarios, nil) }
