{# The model and another relation have exactly the same combinations of the columns: nothing lost,
   nothing invented. Fails with the combinations that only one of them has, and which. #}
{% test covers_exactly(model, to, columns) %}
select 'missing here' as problem, there.*
from (select {{ columns | join(', ') }} from {{ to }}) as there
anti join {{ model }} as here using ({{ columns | join(', ') }})
union all
select 'only here' as problem, here.*
from (select {{ columns | join(', ') }} from {{ model }}) as here
anti join {{ to }} as there using ({{ columns | join(', ') }})
{% endtest %}
