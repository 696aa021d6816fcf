-- They returned 10 less the priority. RECEIVE makes each anew.
update broker_private.groups set receive_made = null, receive_plan = null where receive_made is not null;
