with source as (

    select * from {{ source('raw', 'steam_games') }}

),

typed as (

    select
        *,
        try_cast(trim(release_date) as date) as parsed_date,
        -- 'Fall 2018', 'Январь 2018', '2018.09': a year is the one thing that can be read.
        try_cast(regexp_extract(release_date, '(?:^|\D)((?:19|20)\d{2})(?:\D|$)', 1) as bigint) as named_year
    from source

)

select
    game_id,
    coalesce({{ clean_text('title') }}, {{ clean_text('app_name') }}) as title,
    case when coalesce(year(parsed_date), named_year) between 1970 and 2100 then coalesce(year(parsed_date), named_year) end as year,
    list_sort({{ clean_texts('genres') }}) as genres,
    {{ clean_texts('tags') }} as tags,
    {{ clean_texts('specs') }} as specs,
    {{ clean_text('developer') }} as developer,
    {{ clean_text('publisher') }} as publisher,
    {{ dollars('price') }} as price,
    case when year(parsed_date) between 1970 and 2100 then parsed_date end as release_date,
    early_access,
    {{ clean_text('sentiment') }} as sentiment,
    case when try_cast(metascore as bigint) between 0 and 100 then try_cast(metascore as bigint) end as metascore,
    nullif(trim(url), '') as url
from typed
