with records as (

    select 'books.items' as dataset, reason, count(*) as dropped
    from {{ ref('int_books__catalogue') }}
    where reason is not null
    group by reason
    union all
    select 'books.items', 'repeated_record', count(*) - (select count(*) from {{ ref('int_books__catalogue') }})
    from {{ ref('int_books__records') }}
    union all
    select 'books.interactions', reason, count(*)
    from {{ ref('int_books__reviews') }}
    where reason is not null
    group by reason

)

select dataset, reason, cast(dropped as bigint) as dropped from records
union all
select * from ({{ dropped_users('books', ref('int_books__ratings')) }})
