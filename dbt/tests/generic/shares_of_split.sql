{# Every user's parts have the sizes that the shares ask for, to within the rounding: train is never
   empty, and a user with more than one interaction has something in test; users with too few
   interactions to take part are not there. Fails with one row per user. #}
{% test shares_of_split(model, user) %}
{%- set least_count = var('split_min_interactions') | int %}
{%- set test_share = var('split_test') | float %}
{%- set validation_share = var('split_validation') | float %}
with sizes as (
    select
        {{ user }},
        count(*) as interactions,
        count(*) filter (where split = 'test') as test_size,
        count(*) filter (where split = 'validation') as validation_size,
        count(*) filter (where split = 'train') as train_size
    from {{ model }}
    group by {{ user }}
)
select *
from sizes
where train_size = 0
    or interactions < {{ least_count }}
    or abs(test_size - {{ test_share }} * interactions) > 1
    or abs(validation_size - {{ validation_share }} * interactions) >= 2
    or (interactions > 1 and (test_size > 0) <> {{ test_share > 0 }})
    or (validation_size > 0 and {{ validation_share == 0 }})
{% endtest %}
