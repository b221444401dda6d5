with reviews as (

    select * from {{ ref('int_games__reviews') }} where left_out is null

),

-- A user's list may be in the file twice.
playtime as (

    select user_id, game_id, max(playtime_forever) as minutes
    from {{ ref('stg_steam__playtime') }}
    group by user_id, game_id

)

select
    'steam-user:' || reviews.user_id as user_id,
    'steam:' || reviews.game_id as item_id,
    reviews.game_id,
    {{ verdict('reviews.recommended', 'playtime.minutes') }} as rating,
    '1-5' as scale,
    reviews.posted_at as rated_at,
    reviews.recommended,
    playtime.minutes as playtime,
    -- Without the file nothing is known of what anybody has.
    case when (select count(*) from playtime) > 0 then playtime.minutes is not null end as purchased
from reviews
left join playtime using (user_id, game_id)
