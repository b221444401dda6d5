-- A table: both domains count from it, and distinguishing a title from a page is expensive.
{{ config(materialized='table') }}

select
    '2018' as edition, category, file, line, asin, title_was_page, title is null as title_is_missing
from {{ ref('stg_amazon__meta_2018') }}
union all
select '2023', category, file, line, asin, title_was_page, title is null
from {{ ref('stg_amazon__meta_2023') }}
