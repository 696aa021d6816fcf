-- sys.symmetric_keys: none: a worker's master key is a file, which no database sees. CREATE MASTER KEY keeps one that is there.
select null::text as name, null::bigint as symmetric_key_id, null::bigint as principal_id where false
