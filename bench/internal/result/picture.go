package result

// Picture says what of a table is drawn.
type Picture struct {
	Key, Axis string
	curve     bool
}

// Bars draws a figure of each row.
func Bars(key, axis string) Picture { return Picture{Key: key, Axis: axis} }

// Curve draws a figure over Row.At, a line for each name.
func Curve(key, axis string) Picture { return Picture{key, axis, true} }
