package measure

import "slices"

// Spread is the spread of a figure over several rounds.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Over returns the spread of the rounds' figures, or zero if there are none.
func Over(rounds []float64) Spread {
	if len(rounds) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(rounds))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}
