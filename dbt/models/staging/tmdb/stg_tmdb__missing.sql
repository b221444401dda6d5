select
    tmdb_id,
    reason
from {{ source('raw', 'tmdb_missing') }}
