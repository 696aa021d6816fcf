-- sys.event_notifications: dates are those of the server, as what GETDATE() gives. Its events are in sys.events.
select distinct
  n.name, n.object_id, n.parent_class, n.parent_class_desc, n.parent_id, n.create_date::timestamp(3) as create_date,
  n.modify_date::timestamp(3) as modify_date, n.is_ms_shipped, n.principal_id, n.service_name, n.broker_instance,
  n.is_fan_in
from broker.event_notifications n
