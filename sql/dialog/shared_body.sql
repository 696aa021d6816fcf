-- A body that many messages share; null for null.
create or replace function broker_private.shared_body(number bigint)
returns bytea
language sql stable strict
begin atomic
  select b.body from broker_private.shared_bodies b where b.shared_body_no = number;
end;
