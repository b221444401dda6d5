{# Every value of the column is a value of `field` in one of the relations. Nulls need no account.
   Fails with the values nobody accounts for. #}
{% test accounted_for(model, column_name, relations, field) %}
select distinct {{ column_name }}
from {{ model }}
where {{ column_name }} is not null
{%- for relation in relations %}
    and {{ column_name }} not in (select {{ field }} from {{ relation }} where {{ field }} is not null)
{%- endfor %}
{% endtest %}
