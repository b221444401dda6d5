select
    'ml-user:' || user_number as user_id,
    'ml:' || movie_id as item_id,
    split
from {{ ref('int_movies__user_splits') }}
