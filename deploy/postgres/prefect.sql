-- Run once, when Prefect's database server is made: Prefect searches with trigrams.
\set ON_ERROR_STOP on
CREATE EXTENSION IF NOT EXISTS pg_trgm;
