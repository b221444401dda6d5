select
    'games.interactions' as dataset,
    left_out as reason,
    count(*) as dropped
from {{ ref('int_games__reviews') }}
where left_out is not null
group by left_out

union all

select
    'games.items' as dataset,
    'game_without_title' as reason,
    count(*) as dropped
from {{ ref('stg_steam__games') }}
where title is null

union all

{{ dropped_users('games', ref('int_games__ratings')) }}
