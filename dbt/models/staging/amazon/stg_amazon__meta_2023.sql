with source as (

    select
        *,
        json_extract_string(details, ['$.Publisher', '$."Publication date"', '$."Publication Date"']) as printed,
        json_extract_string(author, '$.name') as author_name
    from {{ source('raw', 'amazon_meta_2023') }}

)

select
    parent_asin as asin,
    category,
    file,
    line,
    {{ product_title('title') }} as title,
    {{ is_page_junk('title') }} as title_was_page,
    {{ clean_text('store') }} as brand,
    {{ clean_text('author_name') }} as author_name,
    {{ department('main_category') }} as main_category,
    {{ clean_texts('categories') }} as category_path,
    {{ paragraphs('description') }} as description,
    {{ clean_texts('features') }} as features,
    {{ price('price') }} as price,
    case when average_rating between 1 and 5 then average_rating end as average_rating,
    case when rating_number >= 0 then rating_number end as rating_number,
    -- The published files have null here; a list of ASINs is what the format says.
    {{ asin_list("coalesce(try_cast(bought_together as varchar[]), [])") }} as bought_together,
    {{ clean_text('printed[1]') }} as publisher_line,
    coalesce(printed[2], printed[3]) as publication_date,
    details
from source
