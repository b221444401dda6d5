select
    item_id,
    title,
    year,
    genres,
    tags,
    specs,
    developer,
    publisher,
    price,
    release_date,
    early_access,
    sentiment,
    metascore,
    url
from {{ ref('int_games__items') }}
