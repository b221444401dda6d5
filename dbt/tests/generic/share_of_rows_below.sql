{# At most `highest` of all rows meet `condition`. Fails with the rows that do, if they are more.
   Applies from `from_rows` rows on: a share of a few rows says nothing. #}
{% test share_of_rows_below(model, condition, highest, from_rows=100) %}
select *
from {{ model }}
where ({{ condition }})
    and (
        select count(*) >= {{ from_rows }} and count(*) filter (where {{ condition }}) > {{ highest }} * count(*)
        from {{ model }}
    )
{% endtest %}
