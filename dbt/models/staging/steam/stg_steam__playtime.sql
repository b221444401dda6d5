select
    line,
    position,
    user_id,
    game_id,
    playtime_forever
from {{ source('raw', 'steam_playtime') }}
