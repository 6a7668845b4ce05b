//go:build unix

package campaign

import (
	"strings"
)

// auditPayments compares what callers were told of an epoch's payments with the bank.
func (c *campaign) auditPayments(epoch int, answers []answer) {
	paid := c.site.bank.paid(epoch)
	for key, by := range paid {
		if len(by) > 1 {
			c.violationf("epoch %d: %q was paid %d times: %v", epoch, key, len(by), by)
		}
	}
	for _, a := range answers {
		switch a.Job {
		case pay, start, cancelled:
		default:
			continue
		}
		if n := len(paid[a.Key]); a.Outcome == executed && n == 0 || (a.Outcome == voided || a.Outcome == rejected) && n > 0 {
			c.violationf("epoch %d: %s of %q by %s was told %s %s, and the bank has paid %d times", epoch, a.Job, a.Key, a.ID, a.Outcome, a.Value, n)
		}
		switch before := c.payments[a.Key]; {
		case a.Outcome == unknown:
		case a.Outcome == late: // also of one that the bank has refused, or that goes on
			if before == voided {
				c.violationf("epoch %d: %s of %q by %s came too late, and others were told that it was cancelled", epoch, a.Job, a.Key, a.ID)
			}
			c.tooLate[a.Key] = true
		case before != "" && before != a.Outcome, a.Outcome == voided && c.tooLate[a.Key]:
			c.violationf("epoch %d: %s of %q by %s was told %s, and others %q (too late for a cancel: %v)", epoch, a.Job, a.Key, a.ID, a.Outcome, before, c.tooLate[a.Key])
		default:
			c.payments[a.Key] = a.Outcome
		}
	}
}

// auditStaged judges all payments after the completer has ended them: none is stuck, and each has
// the bookings of its end, and what callers were told.
func (c *campaign) auditStaged() {
	bookings := map[string]map[string]int{}
	for _, r := range c.rows(`SELECT name, kind FROM campaign_bookings`) {
		if bookings[r[0]] == nil {
			bookings[r[0]] = map[string]int{}
		}
		bookings[r[0]][r[1]]++
	}
	results := c.once("a result", c.rows(`SELECT op_key, COALESCE(result, '') FROM holdfast_staged`))
	states := c.once("a payment", c.rows(`SELECT op_key, state FROM holdfast_staged`))
	for key, state := range states {
		end := map[string]verdict{"2": executed, "3": rejected}[state]
		if end == rejected && strings.Contains(results[key], `"voided"`) {
			end = voided
		}
		if end == "" {
			c.violationf("the payment %q is stuck in state %s", key, state)
			continue
		}
		has, n := bookings[key], len(c.site.bank.paid(epochOf(key))[key])
		delete(bookings, key)
		var right bool
		switch end {
		case executed:
			right = n == 1 && has[booked] == 1 && has[closed] == 1 && has[undone]+has[unasked] == 0
		case voided:
			right = n == 0 && has[booked] == has[undone] && has[booked] <= 1 && has[closed] == 0 && has[asked] == has[unasked]
		default:
			right = n == 0 && has[booked] == 1 && has[closed]+has[undone]+has[unasked] == 0
		}
		if !right || has[asked] > 1 {
			c.violationf("the payment %q was %s: paid %d times, with the bookings %v", key, end, n, has)
		}
		if said := c.payments[key]; said != "" && said != end || end == voided && c.tooLate[key] {
			c.violationf("the payment %q was %s, and callers were told %q (too late for a cancel: %v)", key, end, said, c.tooLate[key])
		}
		delete(c.payments, key)
	}
	for key, has := range bookings {
		c.violationf("there is no payment %q, but it has the bookings %v", key, has)
	}
	for key, said := range c.payments {
		c.violationf("there is no payment %q, but callers were told that it was %s", key, said)
	}
}
