-- sys.dm_exec_sessions: the server's sessions; times are those of the server, as what GETDATE() gives.
select
  s.pid as session_id, s.backend_start::timestamp(3) as login_time,
  coalesce(s.client_hostname, pg_catalog.host(s.client_addr)) as host_name, s.application_name as program_name,
  case when s.state = 'active' then 'running' when s.state like 'idle%' then 'sleeping' end as status,
  s.usename as login_name, s.usename as original_login_name, s.datid::bigint as database_id,
  s.query_start::timestamp(3) as last_request_start_time,
  case when s.xact_start is null then 0 else 1 end as open_transaction_count,
  s.backend_type = 'client backend' as is_user_process
from pg_catalog.pg_stat_activity s
