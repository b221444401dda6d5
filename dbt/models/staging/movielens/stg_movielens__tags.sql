select
    user_id,
    movie_id,
    {{ clean_text('tag') }} as tag,
    to_timestamp("timestamp") as tagged_at
from {{ source('raw', 'movielens_tags') }}
