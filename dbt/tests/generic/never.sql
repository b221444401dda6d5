{# No row meets `condition`. Fails with the rows that do. #}
{% test never(model, condition) %}
select *
from {{ model }}
where {{ condition }}
{% endtest %}
