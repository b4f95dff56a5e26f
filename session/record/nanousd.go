package record

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// NanoUSD is an amount of money in billionths of a US dollar. Sums of it are exact; what is beyond int64,
// about 9.2 billion dollars, stays there.
//
// Its JSON is a number of dollars with at most nine decimals, which is also what earlier releases stored as
// float64: theirs are rounded to the nearest billionth.
type NanoUSD int64

// nanos are those of a dollar.
const nanos = 1_000_000_000

// BudgetUSD returns a budget in dollars: rounded to the nearest billionth, and one billionth at least for
// any amount above 0, since 0 is no budget. An amount that is no number is below 0.
func BudgetUSD(dollars float64) NanoUSD {
	switch n := math.Round(dollars * nanos); {
	case math.IsNaN(n):
		return -1
	case dollars > 0:
		return max(ofFloat(n), 1)
	case dollars < 0:
		return min(ofFloat(n), -1)
	}
	return 0
}

// ofFloat saturates.
func ofFloat(n float64) NanoUSD {
	switch {
	case n >= math.MaxInt64:
		return math.MaxInt64
	case n <= math.MinInt64:
		return math.MinInt64
	}
	return NanoUSD(n)
}

// Dollars is the float64 next to the amount.
func (d NanoUSD) Dollars() float64 { return float64(d) / nanos }

// String is the amount in dollars, with as many decimals as it takes.
func (d NanoUSD) String() string {
	sign, whole, part := "", d/nanos, d%nanos
	if d < 0 {
		sign, whole, part = "-", -whole, -part
	}
	out := sign + strconv.FormatInt(int64(whole), 10)
	if part == 0 {
		return out
	}
	return out + strings.TrimRight(fmt.Sprintf(".%09d", int64(part)), "0")
}

// MarshalJSON writes a number of dollars.
func (d NanoUSD) MarshalJSON() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalJSON reads a number of dollars.
func (d *NanoUSD) UnmarshalJSON(data []byte) error {
	dollars, err := strconv.ParseFloat(string(data), 64)
	if err != nil {
		return fmt.Errorf("an amount of dollars: %w", err)
	}
	const exact = 1 << 50 // below it, the rounded product is what was written
	if n := dollars * nanos; math.Abs(n) < exact || math.Abs(n) > math.MaxInt64 {
		*d = ofFloat(math.Round(n))
		return nil
	}
	r, _ := new(big.Rat).SetString(string(data)) // its exponent is small
	r.Mul(r, big.NewRat(nanos, 1))
	n, ok := new(big.Int).SetString(r.FloatString(0), 10)
	switch {
	case ok && n.IsInt64():
		*d = NanoUSD(n.Int64())
	default:
		*d = ofFloat(dollars * nanos)
	}
	return nil
}

// plus adds counts, neither of which is below zero, and stays at the greatest one.
func plus[T ~int64](a, b T) T {
	if sum := a + b; b < 0 || sum >= a {
		return sum
	}
	return math.MaxInt64
}
