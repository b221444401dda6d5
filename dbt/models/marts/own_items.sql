select item_id, title, year, genres, description, attributes from {{ ref('int_own__items') }}
