with source as (

    select movie_id, title, genres from {{ source('raw', 'movielens_movies') }}

),

cleaned as (

    select movie_id, {{ clean_text('title') }} as source_title, genres from source

),

dated as (

    select
        *,
        {{ title_year('source_title') }} as year,
        {{ without_year('source_title') }} as undated_title
    from cleaned

)

select
    movie_id,
    {{ main_title('undated_title') }} as title,
    year,
    {{ alternative_titles('undated_title') }} as alternative_titles,
    case
        when genres is null or trim(genres) in ('', '(no genres listed)') then []
        else list_sort(list_distinct(list_filter(
            list_transform(string_split(genres, '|'), lambda g: trim(g)), lambda g: g <> ''
        )))
    end as genres,
    source_title
from dated
