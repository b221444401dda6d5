select
    user_id,
    'steam:' || game_id as item_id,
    split
from {{ ref('int_games__user_splits') }}
