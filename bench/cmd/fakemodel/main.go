// Command fakemodel is the model that all servers of a benchmark call.
package main

import (
	"fmt"
	"os"

	"github.com/apzuk3/agentd/bench/internal/fake"
	"github.com/apzuk3/agentd/bench/internal/proc"
)

func main() {
	if err := proc.Serve(&fake.Model{}); err != nil {
		fmt.Fprintln(os.Stderr, "fakemodel:", err)
		os.Exit(1)
	}
}
