package daemon

import (
	// The providers that every daemon has. They register themselves.
	_ "github.com/apzuk3/agentd/model/anthropic"
	_ "github.com/apzuk3/agentd/model/echo"
	_ "github.com/apzuk3/agentd/model/gemini"
	_ "github.com/apzuk3/agentd/model/openai"
)
