with source as (

    select
        *,
        json_extract_string(details, ['$."Publisher:"', '$."Publisher"', '$."Publication Date:"']) as printed
    from {{ source('raw', 'amazon_meta_2018') }}

)

select
    asin,
    category,
    file,
    line,
    {{ product_title('title') }} as title,
    {{ is_page_junk('title') }} as title_was_page,
    {{ clean_text('brand') }} as brand,
    {{ department('main_cat') }} as main_category,
    {{ clean_texts('category_path') }} as category_path,
    {{ paragraphs('description') }} as description,
    {{ clean_texts('feature') }} as features,
    {{ price('price') }} as price,
    {{ asin_list('also_buy') }} as also_bought,
    {{ asin_list('also_view') }} as also_viewed,
    {{ clean_text('coalesce(printed[1], printed[2])') }} as publisher_line,
    printed[3] as publication_date,
    details
from source
