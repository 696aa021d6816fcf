-- A function can't get more columns: the worker's look is made anew.
drop function if exists broker_private.due();
