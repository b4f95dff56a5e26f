package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// results are the measured values, by the row and the server.
type results map[string]map[kind][]float64

func (r results) add(row string, k kind, v float64) {
	if r[row] == nil {
		r[row] = map[kind][]float64{}
	}
	r[row][k] = append(r[row][k], v)
}

// median returns the median of the measured values, if there are any.
func (r results) median(row string, k kind) (v float64, ok bool) {
	values := r[row][k]
	if len(values) == 0 {
		return 0, false
	}
	return median(values), true
}

// print writes the table: in each cell the median, and how many times the floor it is; or the base, when two builds
// are compared.
func (b *bench) print(out io.Writer, chosen []workload, columns []kind, r results) {
	head := []string{"work"}
	for _, k := range columns {
		head = append(head, string(k))
	}
	if b.base == "" {
		head = append(head, "must be, on disk")
	}
	line(out, head)
	line(out, slices.Repeat([]string{"---"}, len(head)))
	for _, w := range chosen {
		for _, row := range w.rows {
			cells := []string{row.title}
			for _, k := range columns {
				cells = append(cells, b.cell(row, k, r))
			}
			if b.base == "" {
				cells = append(cells, row.judge(r))
			}
			line(out, cells)
		}
	}
}

func (b *bench) cell(row row, k kind, r results) string {
	v, ok := r.median(row.title, k)
	if !ok {
		return "–"
	}
	beside, known := map[kind]kind{disk: floor, memory: floor, adk: floor}[k]
	if b.base != "" {
		beside, known = map[kind]kind{disk: baseDisk, memory: baseMemory}[k]
	}
	if least, ok := r.median(row.title, beside); known && ok && least > 0 {
		return number(v) + " (" + times(v/least) + ")"
	}
	return number(v)
}

// judge says what agentd must reach on disk, and whether it does.
func (row row) judge(r results) string {
	must := row.must
	text := "≤ " + number(must)
	if row.above {
		least, ok := r.median(row.title, floor)
		if !ok {
			return "≤ floor + " + number(must)
		}
		must += least
		text = "≤ " + number(must)
	}
	v, ok := r.median(row.title, disk)
	switch {
	case !ok:
		return text
	case v <= must:
		return text + ": met"
	}
	return text + ": " + times(v/must)
}

func times(v float64) string {
	switch {
	case v >= 10:
		return fmt.Sprintf("%.0f×", v)
	case v < 2:
		return fmt.Sprintf("%.2f×", v)
	}
	return fmt.Sprintf("%.2g×", v)
}

// number is a number with three digits or more.
func number(v float64) string {
	switch {
	case v >= 1000:
		whole := fmt.Sprintf("%.0f", v)
		return whole[:len(whole)-3] + "," + whole[len(whole)-3:]
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func line(out io.Writer, cells []string) { fmt.Fprintln(out, "| "+strings.Join(cells, " | ")+" |") }
