-- A table: ratings and drops read it, and its windows over all reviews are expensive.
{{ config(materialized='table') }}

with reviews as (

    select * from {{ ref('int_amazon__reviews') }} where {{ is_product('category') }}

)

select * from ({{ judged_reviews('reviews', ref('int_products__items'), ref('int_products__items')) }})
