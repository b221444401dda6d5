{# No value of the column is a value of `field` in the other relation. #}
{% test disjoint_from(model, column_name, to, field) %}
select distinct {{ column_name }}
from {{ model }}
where {{ column_name }} in (select {{ field }} from {{ to }} where {{ field }} is not null)
{% endtest %}
