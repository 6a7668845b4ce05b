//go:build !simulation

package simulation

func seedChance(uint64) {}

const seeded = false
