package uuid

type UUID [16]byte

func (UUID) String() string { return "" }

func New() UUID                        { return UUID{} }
func NewString() string                { return "" }
func Parse(s string) (u UUID, e error) { return }
