-- What the workers of this database do at fixed periods, and when they last did.
--
-- It tells why a task last failed, too. Times are as of some seconds ago. Empty until a worker has
-- served it.
create or replace view broker.periodic_tasks as
select t.name, t.period, t.description, t.last_run, t.last_failure, t.last_error
from broker_private.periodic_tasks t;

comment on view broker.periodic_tasks is
'What the workers of this database do at fixed periods. Empty until a worker has served it. Ours.';
comment on column broker.periodic_tasks.name is 'of the task';
comment on column broker.periodic_tasks.period is 'how long between two runs at most';
comment on column broker.periodic_tasks.description is 'what it is there for';
comment on column broker.periodic_tasks.last_run is 'when it was last done, as of some seconds';
comment on column broker.periodic_tasks.last_failure is 'when it last failed; NULL if never';
comment on column broker.periodic_tasks.last_error is 'why it last failed';
