{# At most `highest` of all rows meet `condition`. Fails with the rows that do, if they are more. #}
{% test share_of_rows_below(model, condition, highest) %}
select *
from {{ model }}
where ({{ condition }})
    and (select count(*) filter (where {{ condition }}) > {{ highest }} * count(*) from {{ model }})
{% endtest %}
