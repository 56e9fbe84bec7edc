-- Run once, when the ledger's database server is made: a role that is no superuser, and its
-- database, with the check of its indexes that 'statpress ledger verify' runs. The ledger itself
-- is made by 'statpress ledger register'.
\set ON_ERROR_STOP on
\set password `cat /run/secrets/ledger_role_password`
CREATE ROLE statpress LOGIN PASSWORD :'password';
CREATE DATABASE ledger OWNER statpress;
REVOKE CONNECT, TEMPORARY ON DATABASE ledger FROM PUBLIC;
\connect ledger
CREATE SCHEMA amcheck;
CREATE EXTENSION amcheck SCHEMA amcheck;
GRANT USAGE ON SCHEMA amcheck TO statpress;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA amcheck TO statpress;
