{{ config(materialized='table') }}

-- A value that one item alone has joins it to no other.
with stated as (

    select item_id, unnest(attributes) as attribute from {{ ref('stg_own__items') }}

),

shared as (

    select item_id, list(attribute order by attribute) as attributes
    from stated
    where attribute in (select attribute from stated group by attribute having count(*) > 1)
    group by item_id

)

select
    'own:' || items.item_id as item_id,
    items.* exclude (item_id, attributes),
    coalesce(shared.attributes, []) as attributes
from {{ ref('stg_own__items') }} as items
left join shared using (item_id)
