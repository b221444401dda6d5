{# The tiers divide the range of the value: no value of a tier reaches into the next one.
   `order` names the tiers from the smallest values to the largest; empty ones are allowed. #}
{% test tiers_in_order(model, column_name, value, order) %}
with tiers as (
    select
        {{ column_name }} as tier,
        list_position([{% for tier in order %}'{{ tier }}'{{ ', ' if not loop.last }}{% endfor %}], {{ column_name }}) as place,
        min({{ value }}) as lowest,
        max({{ value }}) as highest
    from {{ model }}
    group by {{ column_name }}
)
select tiers.*, others.tier as overlaps
from tiers
inner join tiers as others on tiers.place < others.place and tiers.highest >= others.lowest
union all
select *, cast(null as varchar) as overlaps from tiers where place is null or place = 0
{% endtest %}
