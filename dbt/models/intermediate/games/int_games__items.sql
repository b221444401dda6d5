-- A table, because five models read it and its texts are cleaned once.
{{ config(materialized='table') }}

select
    'steam:' || game_id as item_id,
    *
from {{ ref('stg_steam__games') }}
where title is not null
