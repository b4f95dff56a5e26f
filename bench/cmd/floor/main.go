// Command floor is the least that can stand between a client and a model: the proxy of Go's standard library, which
// sends on each piece as it comes.
package main

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"

	"github.com/apzuk3/agentd/bench/internal/proc"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("floor MODEL-URL: got %d arguments", len(args))
	}
	model, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	// As many connections stay open as there are streams at a time.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(model) },
		Transport:     transport,
		FlushInterval: -1,
	}
	return proc.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Else the server closes the body of the request when the response begins, which the proxy may still read.
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 needs none
		proxy.ServeHTTP(w, r)
	}))
}
