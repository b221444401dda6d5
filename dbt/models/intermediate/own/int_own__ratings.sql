select
    'own-user:' || user_id as user_id,
    'own:' || item_id as item_id,
    rating,
    '1-5' as scale,
    rated_at,
    source_rating,
    source_scale
from {{ ref('stg_own__ratings') }}
semi join {{ ref('stg_own__items') }} using (item_id)
