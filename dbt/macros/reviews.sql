{# Reviews of one domain of Amazon's items, each with the reason why it is left out, or null.

   `reviews` and `items` are relations; `items` has item_id and what is published. `known` are all
   items of the domain that have a record, published or not. #}
{% macro judged_reviews(reviews, known, items) %}
with ranked as (

    select
        *,
        row_number() over (partition by user_id, item_id order by rated_at desc, file desc, line desc) as from_latest,
        -- Reviewers have other ids in the later edition: the same review would count twice.
        edition < max(edition) over (partition by item_id) as in_later_edition
    from {{ reviews }}

)

select
    * exclude (from_latest, in_later_edition),
    case
        when from_latest > 1 then 'repeated_review'
        when in_later_edition then 'in_later_edition'
        when item_id not in (select item_id from {{ known }}) then 'item_without_record'
        when item_id not in (select item_id from {{ items }}) then 'item_left_out'
    end as reason
from ranked
{% endmacro %}
