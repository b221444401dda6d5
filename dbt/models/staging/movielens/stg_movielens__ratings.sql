select
    user_id,
    movie_id,
    rating,
    scale,
    to_timestamp("timestamp") as rated_at
from {{ source('raw', 'movielens_ratings') }}
