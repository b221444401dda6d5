-- Every book that has a record, with the reason why it is not published, or null. A table: items,
-- drops and facts read it.
{{ config(materialized='table') }}

with demands as (

    select
        file,
        bool_or(demanded) filter (where field = 'title') as title,
        bool_or(demanded) filter (where field = 'description') as description,
        bool_or(demanded) filter (where field = 'date') as date,
        bool_or(demanded) filter (where field = 'category') as category
    from {{ ref('int_books__demands') }}
    group by file

),

judged as (

    select
        books.*,
        {{ book_genres('books.category_path') }} as listed,
        demands.category as category_demanded,
        case
            when demands.title and books.title is null then 'no_title'
            when demands.description and books.description is null then 'no_description'
            when demands.date and books.year is null then 'no_date'
            when demands.category and len({{ book_genres('books.category_path') }}) = 0 then 'no_category'
        end as missing
    from {{ ref('int_amazon__items') }} as books
    inner join demands using (file)
    where {{ is_book('books.category') }}

),

sizes as (

    select genre, count(*) as books
    from (select unnest(listed) as genre from judged where missing is null)
    group by genre

),

least_size as (

    select {{ least_category('count(*)') }} as least_size from judged where missing is null

),

large as (

    select coalesce(list(genre) filter (where books >= least_size), []) as names, any_value(least_size) as least_size
    from sizes
    right join least_size on true

)

select
    judged.* exclude (listed, missing, category_demanded),
    list_filter(listed, lambda genre_l: list_contains(large.names, genre_l)) as genres,
    large.least_size,
    case
        when missing is not null then missing
        when category_demanded and not list_has_any(listed, large.names) then 'small_category'
        -- An item without a title can't be shown.
        when title is null then 'no_title'
    end as reason
from judged
cross join large
