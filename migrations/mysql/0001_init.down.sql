-- Deletes every record: a key that was used can be used again.
DROP TABLE IF EXISTS {schema}`{prefix}records`;

DROP TABLE IF EXISTS {schema}`{prefix}schema`;
