-- Behind which destination the next look begins (transmission_work), one more than its number: of those without and with a problem.
create sequence broker_private.flowing_turn as bigint minvalue 0;
create sequence broker_private.faulty_turn as bigint minvalue 0;
-- After which dialog the next look at reasons begins (note_local_reasons).
create sequence broker_private.reasons_turn as bigint minvalue 0;
-- It gets an argument.
drop function if exists broker_private.transmission_work();
-- sweep removes answers that count no more.
create index configuration_requests_answered on broker_private.configuration_requests (answered_at);
