{# A list column is in ascending order and names nothing twice. #}
{% test sorted_without_repeats(model, column_name) %}
select *
from {{ model }}
where {{ column_name }} <> list_sort(list_distinct({{ column_name }}))
{% endtest %}
