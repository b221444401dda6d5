{# Every rating lies on the scale its row names, at a multiple of the step.
   Fails with one row per offending (rating, scale). #}
{% test on_its_scale(model, rating, scale, step) %}
select {{ rating }} as rating, {{ scale }} as scale, count(*) as times
from {{ model }}
where {{ rating }} < {{ scale_lowest(scale) }}
    or {{ rating }} > {{ scale_highest(scale) }}
    or {{ rating }} / {{ step }} <> round({{ rating }} / {{ step }})
group by {{ rating }}, {{ scale }}
{% endtest %}
