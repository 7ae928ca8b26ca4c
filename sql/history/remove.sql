-- All of it: what was published can be published again.
drop schema if exists queue_history cascade;
