select
    'ml-user:' || user_id as user_id,
    age_band,
    gender,
    occupation
from {{ ref('stg_movielens__users') }}
