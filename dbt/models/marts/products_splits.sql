select
    user_id,
    item_id,
    split
from {{ ref('int_products__user_splits') }}
