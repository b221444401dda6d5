with records as (

    select 'products.items' as dataset, 'repeated_record' as reason, count(*) - (select count(*) from {{ ref('int_products__items') }}) as dropped
    from {{ ref('int_products__records') }}
    union all
    select 'products.interactions', reason, count(*)
    from {{ ref('int_products__reviews') }}
    where reason is not null
    group by reason

)

select dataset, reason, cast(dropped as bigint) as dropped from records
union all
select * from ({{ dropped_users('products', ref('int_products__ratings')) }})
