-- broker.periodic_tasks: what the workers of this database do at fixed periods, when it was last
-- done, as of some seconds, and why it last failed. Empty until a worker has served it.
create or replace view broker.periodic_tasks as
select t.name, t.period, t.description, t.last_run, t.last_failure, t.last_error
from broker_private.periodic_tasks t;
