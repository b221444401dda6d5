{# Every genre has at least as many items as the settings ask of a catalogue of this size: the rule
   is worked out anew from those that only their categories could leave out. Fails with the genres. #}
{% test large_enough(model, catalogue) %}
with asked as (
    select {{ least_category('count(*)') }} as least_size
    from {{ catalogue }}
    where reason is null or reason = 'small_category'
)
select genre, count(*) as items
from (select unnest(genres) as genre from {{ model }})
group by genre
having count(*) < (select least_size from asked)
{% endtest %}
