package chaos

import "fmt"

// verdict is what a check has found.
type verdict struct {
	lost, repeated, rerun int
	other                 int // what is none of these, and wrong
	facts                 int // that were held against the log
	texts                 []string
}

func (v *verdict) add(w verdict) {
	v.lost += w.lost
	v.repeated += w.repeated
	v.rerun += w.rerun
	v.other += w.other
	v.facts += w.facts
	for _, text := range w.texts {
		v.keep(text)
	}
}

// keep holds on to the first texts: one fault often brings many.
func (v *verdict) keep(text string) {
	if len(v.texts) < 60 {
		v.texts = append(v.texts, text)
	}
}

func (v *verdict) lostf(format string, args ...any) {
	v.lost++
	v.keep("lost: " + fmt.Sprintf(format, args...))
}

func (v *verdict) repeatedf(format string, args ...any) {
	v.repeated++
	v.keep("repeated: " + fmt.Sprintf(format, args...))
}

func (v *verdict) rerunf(format string, args ...any) {
	v.rerun++
	v.keep("rerun: " + fmt.Sprintf(format, args...))
}

func (v *verdict) otherf(format string, args ...any) {
	v.other++
	v.keep("wrong: " + fmt.Sprintf(format, args...))
}

func (v *verdict) bad() bool { return v.lost+v.repeated+v.rerun+v.other > 0 }
