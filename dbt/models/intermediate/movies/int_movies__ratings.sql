select
    'ml-user:' || user_id as user_id,
    'ml:' || movie_id as item_id,
    user_id as user_number,
    movie_id,
    rating,
    scale,
    rated_at
from {{ ref('stg_movielens__ratings') }}
