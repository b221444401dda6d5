{# None of the columns is null. Fails with the whole rows. #}
{% test no_nulls(model, columns) %}
select *
from {{ model }}
where {% for column in columns %}{{ column }} is null{{ ' or ' if not loop.last }}{% endfor %}
{% endtest %}
