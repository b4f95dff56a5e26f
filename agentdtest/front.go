package agentdtest

import (
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/apzuk3/agentd/internal/test/testdaemon"
)

// stepBehind has clients reach a handler in place of the daemon. It is called
// before anybody knows the daemon.
func (d *Daemon) stepBehind(front func(*http.Client, string) http.Handler, loopback bool) error {
	inner := d.transport
	server := &http.Server{Handler: front(&http.Client{Transport: inner}, d.URL), Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	var l net.Listener
	if loopback {
		at, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		d.transport = &http.Transport{Protocols: inner.Protocols}
		d.URL, l = "http://"+at.Addr().String(), at
	} else {
		pipes := testdaemon.NewListener()
		d.transport, d.URL, l = pipes.Transport(), pipes.URL(), pipes
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }() // ends with the front
	d.endFront = sync.OnceValue(func() error {
		err := server.Close() // with the streams that the daemon has not ended
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		inner.CloseIdleConnections()
		return err
	})
	return nil
}
