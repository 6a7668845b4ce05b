-- Drops what functions/postgres.up.sql has created, and no record.
DROP TABLE IF EXISTS {schema}"{prefix}calls";

DROP FUNCTION IF EXISTS
{functions};
