{# The column numbers the rows 1, 2, 3 … and never gives a better rank to a smaller `by`. #}
{% test ranks_without_gaps(model, column_name, by) %}
select *
from (
    select
        *,
        row_number() over (order by {{ column_name }}) as expected_rank,
        lag({{ by }}) over (order by {{ column_name }}) as previous
    from {{ model }}
)
where {{ column_name }} is distinct from expected_rank or previous < {{ by }}
{% endtest %}
