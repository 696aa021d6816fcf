-- Who announced a program, as each role may announce so many of a queue. Null for one that was announced before this revision.
alter table broker_private.service_programs add column role_name name;
