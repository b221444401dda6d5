-- Facts that snapshots of the published tables note beside the rows left out.
select 'products.items' as dataset, 'titles_of_pages' as fact, cast(coalesce(sum(titles_of_pages), 0) as bigint) as value
from {{ ref('int_amazon__cleaning') }}
where {{ is_product('category') }}
union all
select 'products.items', 'paths_cut', count(*)
from {{ ref('int_products__items') }}
where path_was_cut
union all
select 'products.items', 'without_path', count(*)
from {{ ref('int_products__items') }}
where len(category_path) = 0
