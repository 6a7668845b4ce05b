package reaper

import "time"

// minShare is the part of Options.Batch that a batch is made smaller to: below it
// commits cost more than rows, and a sweep on a slow disk would not end.
const minShare = 5

// size is how many rows the batches of one task have. It begins at Options.Batch
// and goes from pass to pass.
type size struct{ rows int }

// limit is that of the next batch, at most most.
func (s *size) limit(most int) int {
	if s.rows == 0 || s.rows > most {
		s.rows = most
	}
	return s.rows
}

// learn makes batches smaller by half when the write of one took longer than it
// should, and larger by half when one that was full took less than half of that.
func (s *size) learn(rows int, took, aim time.Duration, most int) {
	switch {
	case took > aim:
		s.rows = max(min(s.rows, rows)/2, most/minShare, 1)
	case took < aim/2 && rows >= s.rows:
		s.rows = min(s.rows+(s.rows+1)/2, most)
	}
}
