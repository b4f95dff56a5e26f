package turns

import (
	"testing"

	"github.com/apzuk3/agentd/internal/test/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }
