package core

import "iter"

// Pages lists what read returns: pages of up to size items that follow one. The first page follows after. The
// list ends with err, or with the first error of read.
func Pages[T any](err error, after T, size int, read func(after T) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		last, err, page := after, err, []T(nil)
		for {
			if err == nil {
				page, err = read(last)
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, last = range page {
				if !yield(last, nil) {
					return
				}
			}
			if len(page) < size {
				return
			}
		}
	}
}

// First collects the first items of a list, n at most.
func First[T any](n int, list iter.Seq2[T, error]) (first []T, err error) {
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		if first = append(first, item); len(first) == n {
			break
		}
	}
	return first, nil
}
