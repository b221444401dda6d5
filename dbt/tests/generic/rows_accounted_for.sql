{# Every row of the relation that the model is made from is either in it or counted among those left
   out: `drops` has dataset, reason and dropped (count). Fails with the counts. #}
{% test rows_accounted_for(model, to, drops, dataset) %}
with counts as (
    select
        (select count(*) from {{ to }}) as rows_there,
        (select count(*) from {{ model }}) as rows_here,
        (select coalesce(sum(dropped), 0) from {{ drops }} where dataset = '{{ dataset }}') as rows_dropped
)
select * from counts where rows_there <> rows_here + rows_dropped
{% endtest %}
