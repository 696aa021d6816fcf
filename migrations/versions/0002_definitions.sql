-- Dialogs from other brokers whose lifetime is longer than begin_dialog's longest, 68 years, or ended as long ago. At
-- the end of time the view conversation_endpoints could not be read any more (22008).
update broker_private.endpoints e
set
  expires_at = greatest(least(e.expires_at, '2100-01-01 00:00+00'), '1900-01-01 00:00+00'),
  closed_at = least(e.closed_at, '2100-01-01 00:00+00')
where e.expires_at not between '1900-01-01 00:00+00' and '2100-01-01 00:00+00' or e.closed_at > '2100-01-01 00:00+00';
