select
    'own-user:' || user_id as user_id,
    age_band,
    gender,
    occupation
from {{ source('raw', 'own_users') }}
