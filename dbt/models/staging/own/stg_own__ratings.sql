select
    user_id,
    item_id,
    (rating - low) * 4.0 / (high - low) + 1.0 as rating,
    to_timestamp("timestamp") as rated_at,
    rating as source_rating,
    printf('%g-%g', low, high) as source_scale
from {{ source('raw', 'own_ratings') }}
