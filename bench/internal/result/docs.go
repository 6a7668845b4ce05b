package result

// Docs x
func (r *Report) Docs(page string) error { return nil }
