-- A table: both domains read it, and cleaning the texts is expensive. Which record of an ASIN stays is
-- chosen by its place alone, so that only those that stay are cleaned.
{{ config(materialized='table') }}

with places as (

    select '2018' as edition, asin, file, line from {{ ref('stg_amazon__meta_2018') }}
    union all
    select '2023' as edition, asin, file, line from {{ ref('stg_amazon__meta_2023') }}

),

kept as (

    select edition, file, line
    from places
    qualify row_number() over (partition by asin order by edition desc, file, line) = 1

),

records as (

    select
        'asin:' || asin as item_id, '2018' as edition, category, file, line, title, title_was_page, brand,
        -- An author's page stands for their name.
        case
            when regexp_matches(brand, '^Visit Amazon''s .+ Page$') then [regexp_extract(brand, '^Visit Amazon''s (.+) Page$', 1)]
            when brand is null then []
            else [brand]
        end as authors,
        main_category, category_path, description, features, price,
        cast(null as double) as average_rating, cast(null as bigint) as rating_number,
        also_bought, also_viewed, cast([] as varchar[]) as bought_together,
        publisher_line, publication_date, details
    from {{ ref('stg_amazon__meta_2018') }}
    inner join (select file, line from kept where edition = '2018') using (file, line)
    union all
    select
        'asin:' || asin, '2023', category, file, line, title, title_was_page, brand,
        -- 'A. Writer (Author), B. Painter (Illustrator)  Format: Kindle Edition'
        case
            when author_name is not null then [author_name]
            else list_distinct(regexp_extract_all(coalesce(brand, ''), '(?:^|, | & )([^,()]+?)\s*\(Author\)', 1))
        end,
        main_category, category_path, description, features, price,
        average_rating, rating_number,
        [], [], bought_together,
        publisher_line, publication_date, details
    from {{ ref('stg_amazon__meta_2023') }}
    inner join (select file, line from kept where edition = '2023') using (file, line)

)

select
    * exclude (publisher_line, publication_date),
    {{ publisher_name('publisher_line') }} as publisher,
    {{ day_in_words("coalesce(publication_date, " ~ publisher_date('publisher_line') ~ ")") }} as release_date,
    {{ year_in_words("coalesce(publication_date, " ~ publisher_date('publisher_line') ~ ")") }} as year
from records
