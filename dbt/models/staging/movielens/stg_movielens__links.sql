select
    movie_id,
    -- IMDb numbers have at least seven digits; some editions of the file drop the leading zeros.
    case
        when regexp_matches(trim(imdb_id), '^\d+$') then
            'tt' || case when length(trim(imdb_id)) < 7 then lpad(trim(imdb_id), 7, '0') else trim(imdb_id) end
    end as imdb_id,
    tmdb_id
from {{ source('raw', 'movielens_links') }}
