-- For MySQL and MariaDB. Keys are VARBINARY: a text column folds case, and would take two keys for one.
CREATE TABLE orders (
  order_no VARBINARY(64) NOT NULL PRIMARY KEY,
  paid     BIGINT NOT NULL,
  refunded BIGINT NOT NULL DEFAULT 0,
  CHECK (refunded <= paid)
);
CREATE TABLE refunds (
  order_no  VARBINARY(64) NOT NULL,
  refund_no VARBINARY(64) NOT NULL,
  cents     BIGINT NOT NULL
);
CREATE TABLE settlements (
  merchant VARBINARY(64) NOT NULL,
  day      VARBINARY(10) NOT NULL,
  cents    BIGINT NOT NULL,
  PRIMARY KEY (merchant, day)
);
CREATE TABLE payouts (
  merchant VARBINARY(64) NOT NULL,
  day      VARBINARY(10) NOT NULL,
  cents    BIGINT NOT NULL,
  CHECK (cents >= 0),
  FOREIGN KEY (merchant, day) REFERENCES settlements (merchant, day)
);
