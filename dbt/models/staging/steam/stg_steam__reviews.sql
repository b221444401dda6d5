{%- set review_year = var('games_review_year') | int %}
with source as (

    select *, regexp_extract(posted, '^\s*Posted (.+?)\.?\s*$', 1) as posted_on from {{ source('raw', 'steam_reviews') }}

)

select
    line,
    position,
    user_id,
    game_id,
    recommend as recommended,
    -- The published file has 'November 5, 2011', or no year; copies without the texts '2011-11-05'.
    coalesce(
        try_strptime(posted_on, '%Y-%m-%d'),
        try_strptime(posted_on, '%B %d, %Y')
        {%- if review_year %},
        try_strptime(posted_on || ', {{ review_year }}', '%B %d, %Y')
        {%- endif %}
    ) at time zone 'UTC' as posted_at,
    {{ clean_text('review') }} as review
from source
