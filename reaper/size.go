package reaper

import "time"

// minShare bounds how far a batch shrinks: to a fifth of Options.Batch. Below that, commits
// cost more than rows, and a sweep on a slow disk would not end.
const minShare = 5

// size is the batch size of one task, in rows. It begins at Options.Batch and is kept from one
// pass to the next.
type size struct{ rows int }

// limit returns the size of the next batch, at most most.
func (s *size) limit(most int) int {
	if s.rows == 0 || s.rows > most {
		s.rows = most
	}
	return s.rows
}

// learn halves the batch size when a write took longer than aim. It raises the size by half
// when a full batch took less than half of aim.
func (s *size) learn(rows int, took, aim time.Duration, most int) {
	switch {
	case took > aim:
		s.rows = max(min(s.rows, rows)/2, most/minShare, 1)
	case took < aim/2 && rows >= s.rows:
		s.rows = min(s.rows+(s.rows+1)/2, most)
	}
}
