-- SUBER demands categories, description, title and date of every book. A field that no record of a
-- file has can't be demanded of that file's books.
with books as (

    select * from {{ ref('int_amazon__items') }} where {{ is_book('category') }}

),

filled as (

    select
        file,
        count(*) as records,
        count(title) as title,
        count(description) as description,
        count(year) as date,
        count(*) filter (where len(category_path) > 0) as category
    from books
    group by file

)

select file, records, field, filled, filled > 0 as demanded
from filled
unpivot (filled for field in (title, description, date, category))
