select
    user_id,
    item_id,
    rating,
    scale,
    rated_at
from {{ ref('int_movies__interactions') }}
