package main

import (
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	chosen, err := choose("burst,start")
	if err != nil || len(chosen) != 2 || chosen[0].name != "burst" || chosen[1].name != "start" {
		t.Errorf("%v, %v", chosen, err)
	}
	if _, err := choose("bursts"); err == nil || !strings.Contains(err.Error(), "burst,") {
		t.Errorf("%v", err)
	}
	b := &bench{}
	if got, err := b.columns("memory,adk"); err != nil || !slices.Equal(got, []kind{memory, adk}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := b.columns("base-disk"); err == nil {
		t.Error("there is no base")
	}
	b.base = "x"
	if got, err := b.columns(""); err != nil || !slices.Equal(got, []kind{baseDisk, disk, baseMemory, memory}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestPrint(t *testing.T) {
	r := results{}
	w := workload{rows: []row{{title: "a", must: 600}, {title: "b", must: 900, above: true}, {title: "c", must: 40}}}
	for _, v := range []float64{3, 1, 2} {
		r.add("a", floor, 100*v)
		r.add("a", disk, 1000*v)
		r.add("b", floor, 50)
		r.add("b", disk, 950*v/2)
	}
	r.add("c", memory, 12.345)
	var out strings.Builder
	(&bench{}).print(&out, []workload{w}, []kind{floor, disk, memory}, r)
	want := `| work | floor | agentd, disk | agentd, memory | must be, on disk |
| --- | --- | --- | --- | --- |
| a | 200 | 2,000 (10×) | – | ≤ 600: 3.3× |
| b | 50 | 950 (19×) | – | ≤ 950: met |
| c | – | – | 12.3 | ≤ 40 |
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	r.add("a", baseDisk, 1000)
	out.Reset()
	(&bench{base: "x"}).print(&out, []workload{w}[:1], []kind{baseDisk, disk}, r)
	if !strings.Contains(out.String(), "| a | 1,000 | 2,000 (2×) |\n") {
		t.Error(out.String())
	}
}
