{# The columns together identify a row. Fails with one row per repeated combination.

   Equal rows have equal hashes: the columns themselves are looked at only where a hash occurs twice.
   Groups of eight bytes need half the memory of groups of text keys. #}
{% test unique_combination(model, columns) %}
select {{ columns | join(', ') }}, count(*) as times
from {{ model }}
where hash({{ columns | join(', ') }}) in (
    select hash({{ columns | join(', ') }}) as hashed from {{ model }} group by hashed having count(*) > 1
)
group by {{ columns | join(', ') }}
having count(*) > 1
{% endtest %}
