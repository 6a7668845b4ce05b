-- name: InsertRefund :exec
INSERT INTO refunds (order_no, refund_no, cents) VALUES ($1, $2, $3);

-- name: Charge :execrows
UPDATE orders SET refunded = refunded + sqlc.arg(cents) WHERE order_no = sqlc.arg(order_no);

-- name: InsertPayout :exec
INSERT INTO payouts (merchant, day, cents) VALUES ($1, $2, $3);
