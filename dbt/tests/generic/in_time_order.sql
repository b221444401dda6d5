{# No interaction of a later part is older than one of an earlier part of the same user (ties in
   time may be on both sides). Fails with one row per user. #}
{% test in_time_order(model, user) %}
with parts as (
    select
        {{ user }},
        max(rated_at) filter (where split = 'train') as train_last,
        min(rated_at) filter (where split = 'validation') as validation_first,
        max(rated_at) filter (where split = 'validation') as validation_last,
        min(rated_at) filter (where split = 'test') as test_first
    from {{ model }}
    group by {{ user }}
)
select *
from parts
where train_last > validation_first or train_last > test_first or validation_last > test_first
{% endtest %}
