-- Removes the engine with every queue, event, position and dead letter in it. The roles stay: they
-- belong to the whole server and may be in use by an engine in another database.

drop schema if exists pgque cascade;
