-- A table, because two marts read it and the window over all ratings is expensive.
{{ config(materialized='table') }}

{{ user_splits(ref('int_books__interactions')) }}
