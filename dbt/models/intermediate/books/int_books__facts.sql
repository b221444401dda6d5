-- Facts that snapshots of the published tables note beside the rows left out.
select 'books.items' as dataset, 'least_category_size' as fact, cast(max(least_size) as bigint) as value
from {{ ref('int_books__catalogue') }}
union all
select 'books.items', 'titles_of_pages', cast(coalesce(sum(titles_of_pages), 0) as bigint)
from {{ ref('int_amazon__cleaning') }}
where {{ is_book('category') }}
union all
select 'books.items', field || ' not demanded of ' || file, records
from {{ ref('int_books__demands') }}
where not demanded
