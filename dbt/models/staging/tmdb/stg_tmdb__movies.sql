with source as (

    select * from {{ source('raw', 'tmdb_movies') }}

),

dated as (

    select
        *,
        -- TMDB writes '' or '0000-00-00' for an unknown date; some dumps cut dates or add a time.
        try_cast(regexp_extract(trim(release_date), '^\d{4}-\d{2}-\d{2}') as date) as parsed_date
    from source

)

select
    tmdb_id,
    case when regexp_matches(trim(imdb_id), '^tt\d{7,}$') then trim(imdb_id) end as imdb_id,
    {{ clean_text('title') }} as title,
    {{ clean_text('original_title') }} as original_title,
    nullif(lower(trim(original_language)), '') as original_language,
    {{ clean_text('overview') }} as overview,
    {{ clean_texts('genres') }} as genres,
    {{ clean_texts('keywords') }} as keywords,
    {{ clean_texts('actors') }} as actors,
    {{ clean_texts('directors') }} as directors,
    {{ clean_text('collection') }} as collection,
    case when year(parsed_date) between 1870 and 2100 then parsed_date end as release_date,
    -- TMDB has 0 where a figure is unknown.
    case when runtime > 0 then runtime end as runtime,
    case when popularity >= 0 and isfinite(popularity) then popularity end as popularity,
    case when vote_count > 0 and vote_average between 0 and 10 then vote_average end as vote_average,
    case when vote_count >= 0 then vote_count end as vote_count,
    case when budget > 0 then budget end as budget,
    case when revenue > 0 then revenue end as revenue,
    case when starts_with(trim(poster_path), '/') then trim(poster_path) end as poster_path
from dated
