-- Drops what functions/mysql.up.sql has created.
{drops}
