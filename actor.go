package holdfast

// Actor is the person, or the program, who intervenes, and the reason. Both are required: 1 to 255 and 1 to 500
// bytes of UTF-8 without NUL. They are kept with what was changed and in the audit (package audit), so write no
// personal data of customers there.
type Actor struct{ By, Reason string }
