package files

import (
	"testing"

	"github.com/apzuk3/agentd/internal/test/harness"
)

// scenarios are the tests that TestServices runs over both services.
var scenarios = map[string]harness.Scenario{
	"TestFiles":        {Run: TestFiles},
	"TestFilesLarge":   {Run: TestFilesLarge, Slow: true},
	"TestFilesRefused": {Run: TestFilesRefused},
	"TestFilesByTool":  {Run: TestFilesByTool},
	"TestFilesQueued":  {Run: TestFilesQueued},
}

func TestScenarios(t *testing.T) { harness.CheckScenarios(t, scenarios, nil) }

func TestServices(t *testing.T) { harness.RunScenarios(t, scenarios, nil) }
