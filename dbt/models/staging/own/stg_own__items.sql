select
    item_id,
    coalesce({{ clean_text('title') }}, item_id) as title,
    case when year between 1 and 2100 then year end as year,
    list_sort({{ clean_texts('genres') }}) as genres,
    {{ clean_text('description') }} as description,
    attributes
from {{ source('raw', 'own_items') }}
