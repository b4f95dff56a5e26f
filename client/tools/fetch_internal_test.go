package tools

import (
	"net/netip"
	"net/url"
	"testing"
)

// TestReaches: addresses of the own network are for hosts that an entry names in full, and some for none.
func TestReaches(t *testing.T) {
	f, err := newFetcher([]string{"named.example", "*.wild.example"})
	if err != nil {
		t.Fatal(err)
	}
	for ip, want := range map[string][2]bool{ // named, by a wildcard
		"93.184.216.34": {true, true}, "2606:2800:220:1::1": {true, true},
		"127.0.0.1": {true, false}, "10.0.0.1": {true, false}, "192.168.1.1": {true, false}, "172.16.0.1": {true, false}, "100.64.0.1": {true, false}, "0.1.2.3": {true, false},
		"::1": {true, false}, "fd00::1": {true, false}, "64:ff9b::a00:1": {true, false}, "2002:a00:1::": {true, false}, "198.18.0.1": {true, false}, "240.0.0.1": {true, false},
		"169.254.169.254": {false, false}, "fe80::1": {false, false}, "0.0.0.0": {false, false}, "::": {false, false}, "224.0.0.1": {false, false}, "ff02::1": {false, false}, "255.255.255.255": {false, false},
		"::ffff:127.0.0.1": {true, false}, "::ffff:169.254.169.254": {false, false},
	} {
		at := netip.MustParseAddr(ip).Unmap()
		if got := [2]bool{f.reaches("Named.example", at) == nil, f.reaches("x.wild.example", at) == nil}; got != want {
			t.Errorf("%s: %v, want %v", ip, got, want)
		}
	}
}

func TestMatch(t *testing.T) {
	f, err := newFetcher([]string{"a.example", "https://b.example/docs", "http://c.example", "https://d.example:8443/", "*.e.example"})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"https://a.example/": true, "https://A.example:443/x?y=z": true, "http://a.example/": false, "https://a.example.evil/": false, "https://xa.example/": false, "https://a.example:444/": false,
		"https://b.example/docs": true, "https://b.example/docs/x": true, "https://b.example/docsx": false, "https://b.example/": false, "https://b.example/docs/../x": false,
		"https://b.example/docs/%2e%2e/x": false, "https://b.example/docs%2f..%2fx": false, "https://b.example//docs": true,
		"http://c.example:80/": true, "https://c.example/": false, "https://d.example:8443/x": true, "https://d.example/x": false,
		"https://x.e.example/": true, "https://x.y.e.example/": true, "https://e.example/": false, "https://xe.example/": false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.match(u) != nil; got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	for _, entry := range []string{"", "ftp://x", "https://", "x?y", "https://u@x", "a.*.example", "https://x/#y"} {
		if _, err := newFetcher([]string{entry}); err == nil {
			t.Errorf("%q is taken", entry)
		}
	}
}
