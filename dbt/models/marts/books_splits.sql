select
    user_id,
    item_id,
    split
from {{ ref('int_books__user_splits') }}
