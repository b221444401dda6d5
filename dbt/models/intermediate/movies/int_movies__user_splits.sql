-- A table, because two marts read it and the window over all ratings is the most expensive step. It works
-- on the source's numbers rather than on text keys: a third of the memory.
{{ config(materialized='table') }}

{{ user_splits(ref('int_movies__interactions'), user='user_number', item='movie_id') }}
