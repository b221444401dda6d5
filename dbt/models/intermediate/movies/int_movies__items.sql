-- One row per MovieLens film, with or without a TMDB record: both joins keep every film, and both
-- right sides have unique keys (tested), so no film is lost or doubled.
-- A table: the marts and their tests read it many times.
{{ config(materialized='table') }}

select
    'ml:' || movies.movie_id as item_id,
    movies.movie_id,
    coalesce(movies.title, tmdb.title) as title,
    coalesce(movies.year, year(tmdb.release_date)) as year,
    movies.alternative_titles,
    movies.genres,
    tmdb.overview,
    coalesce(tmdb.actors, []) as actors,
    coalesce(tmdb.directors, []) as directors,
    coalesce(tmdb.keywords, []) as keywords,
    tmdb.collection,
    tmdb.original_title,
    tmdb.original_language,
    tmdb.release_date,
    tmdb.runtime,
    tmdb.budget,
    tmdb.revenue,
    tmdb.popularity,
    tmdb.vote_average,
    tmdb.vote_count,
    tmdb.poster_path,
    links.tmdb_id,
    coalesce(links.imdb_id, tmdb.imdb_id) as imdb_id,
    tmdb.tmdb_id is not null as has_tmdb
from {{ ref('stg_movielens__movies') }} as movies
left join {{ ref('stg_movielens__links') }} as links using (movie_id)
left join {{ ref('stg_tmdb__movies') }} as tmdb on links.tmdb_id = tmdb.tmdb_id
