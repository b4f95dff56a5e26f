// Provider is a daemon with one model provider more than agentd has: the package
// acme registers itself, and this program imports it.
//
//	ACME_API_KEY=… go run ./examples/provider
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/apzuk3/agentd/agentdhost"
	_ "github.com/apzuk3/agentd/examples/provider/acme" // the models "acme/…"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := agentdhost.Serve(ctx, agentdhost.Config{Addr: "127.0.0.1:8080"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
