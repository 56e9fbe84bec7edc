-- Run by the superuser in a ledger's database, a restored one too: the check of indexes and pages
-- that 'statpress ledger verify' and 'statpress doctor' call, for the role statpress.
\set ON_ERROR_STOP on
CREATE SCHEMA IF NOT EXISTS amcheck;
CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA amcheck;
GRANT USAGE ON SCHEMA amcheck TO statpress;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA amcheck TO statpress;
