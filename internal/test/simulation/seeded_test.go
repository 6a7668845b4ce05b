//go:build simulation

package simulation

import _ "unsafe" // for go:linkname

// seedChance makes the chance of the runtime that of a seed: see chance.
//
//go:linkname seedChance runtime.seedChance
func seedChance(seed uint64)

// seeded is whether it does.
const seeded = true
