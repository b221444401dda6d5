select
    user_id,
    item_id,
    rating,
    scale,
    rated_at,
    recommended,
    playtime,
    purchased
from {{ ref('int_games__interactions') }}
