-- For PostgreSQL, and SQLite.
CREATE TABLE orders (
  order_no TEXT NOT NULL PRIMARY KEY,
  paid     BIGINT NOT NULL,
  refunded BIGINT NOT NULL DEFAULT 0,
  CHECK (refunded <= paid)
);
CREATE TABLE refunds (
  order_no  TEXT NOT NULL,
  refund_no TEXT NOT NULL,
  cents     BIGINT NOT NULL
);
CREATE TABLE settlements (
  merchant TEXT NOT NULL,
  day      TEXT NOT NULL,
  cents    BIGINT NOT NULL,
  PRIMARY KEY (merchant, day)
);
CREATE TABLE payouts (
  merchant TEXT NOT NULL,
  day      TEXT NOT NULL,
  cents    BIGINT NOT NULL,
  CHECK (cents >= 0),
  FOREIGN KEY (merchant, day) REFERENCES settlements (merchant, day)
);
