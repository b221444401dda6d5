-- A table: cutting the paths is expensive, and three models read it.
{{ config(materialized='table') }}

with products as (

    select * replace ({{ named_levels('category_path') }} as category_path), len(category_path) as levels_listed
    from {{ ref('int_amazon__items') }}
    where {{ is_product('category') }}

)

select
    * exclude (levels_listed),
    levels_listed > len(category_path) as path_was_cut,
    list_sort(list_distinct(case
        when len(category_path) > 1 then category_path[2:]
        else [coalesce(main_category, {{ department_of_file('category') }})]
    end)) as genres
from products
