{{ config(materialized='table') }}

-- Every review, and why it is left out, if it is: of several reviews of a game by the same user the
-- latest stays, else the last in the file.
with reviews as (

    select
        *,
        row_number() over (
            partition by user_id, game_id order by posted_at desc nulls last, line desc, position desc
        ) as from_latest
    from {{ ref('stg_steam__reviews') }}

),

games as (

    select game_id, true as known from {{ ref('int_games__items') }}

)

select
    reviews.user_id,
    reviews.game_id,
    reviews.recommended,
    reviews.posted_at,
    case
        when reviews.from_latest > 1 then 'repeated_review'
        when reviews.posted_at is null then 'review_without_date'
        when games.known is null then 'game_not_in_catalogue'
    end as left_out
from reviews
left join games using (game_id)
