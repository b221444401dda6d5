{# No interaction of a later part is older than one of an earlier part of the same user (ties in
   time may be on both sides). `times` has the times. Fails with one row per user. #}
{% test in_time_order(model, times, key) %}
with parts as (
    select
        {{ key[0] }},
        max(rated_at) filter (where split = 'train') as train_last,
        min(rated_at) filter (where split = 'validation') as validation_first,
        max(rated_at) filter (where split = 'validation') as validation_last,
        min(rated_at) filter (where split = 'test') as test_first
    from {{ model }}
    inner join {{ times }} using ({{ key | join(', ') }})
    group by {{ key[0] }}
)
select *
from parts
where train_last > validation_first or train_last > test_first or validation_last > test_first
{% endtest %}
