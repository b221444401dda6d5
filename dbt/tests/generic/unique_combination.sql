{# The columns together identify a row. Fails with one row per repeated combination. #}
{% test unique_combination(model, columns) %}
select {{ columns | join(', ') }}, count(*) as times
from {{ model }}
group by {{ columns | join(', ') }}
having count(*) > 1
{% endtest %}
